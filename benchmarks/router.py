"""How fast the router is: `make bench-router` writes build/bench/router.json. One core, a minute."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from functools import partial
from statistics import median

import orjson

from benchmarks import cesql, workload
from benchmarks.results import FOLDER, RUNS, Figure, seconds, together, write
from eventplane import fast_reader
from eventplane.contract import Contract, Place, Route
from eventplane.envelope import Envelope, parse_event, parse_strictly
from eventplane.limits import MAX_REMEMBERED_BYTES
from eventplane.route_index import RouteIndex
from eventplane.router import Router
from eventplane.sender import sender_in_frame
from eventplane.sending import SendingRights, stamp_sender

ROUTES = (10, 1_000, 10_000)
AIM_ROUTES = 1_000
AIM_FASTER = {"parse_and_route": 2.5, "parse_and_route_orjson": 4.0}
"""How many times the events per second of the strict reader with the index alone, in the same run."""
AIM_COST_RATIO = 1.2
AIM_DISTINCT_RATIO = 1.0
AIM_CHECKS_RATIO = 1.05
AIM_COMPILE_S = 0.5
AIM_IMPORT_MS = 40.0
DISTINCT = 8_000
"""Events whose subjects all differ: more than the router remembers, so that none finds its routes there."""
TOLERANCE = 1.03
"""A ratio that two runs of the same code do not exceed."""
MATCHES = 5
"""Routes that each event of the workload takes."""

_IMPORT = (
    "import time; t = time.process_time(); import eventplane.router; print((time.process_time() - t) * 1e3)"
)
_STANDARD = "base64, bisect, collections, dataclasses, datetime, enum, hashlib, json, re, typing"
_PEAK = """
from eventplane.contract import Place
from eventplane.envelope import parse_event
from eventplane.router import Router
from benchmarks import workload
router = Router(workload.contract({routes}), Place.CLOUD)
for number in range(workload.EVENTS):
    router.route(parse_event(workload.event(number)))
with open("/proc/self/status") as status:  # getrusage would count the parent's memory as well
    print(next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM")))
"""


def main() -> None:
    """Measure on one core, write, print."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    figures = [
        *_routing(),
        *_distinct(),
        _remembered_bytes(),
        _checks(),
        cesql.evaluation("three_terms"),
        _compilation(),
        *(_peak_memory(routes) for routes in ROUTES),
        _import_time(),
    ]
    write("router", figures, "make bench-router")


def _routing() -> list[Figure]:
    """Return what parse and route cost with each reader, all in one run."""
    raw = [workload.event(number) for number in range(workload.EVENTS)]
    contracts = {routes: workload.contract(routes) for routes in ROUTES}
    for contract in contracts.values():
        _check_matches(raw[0], contract)
    actions = {
        "json_loads": partial(_all, raw, json.loads),
        "orjson_loads": partial(_all, raw, orjson.loads),
        "parse_strict": partial(_all, raw, parse_strictly),
        "parse": partial(_all, raw, parse_event),
        "parse_orjson": partial(_with_orjson, raw, parse_event),
    }
    for routes, contract in contracts.items():
        actions |= {
            f"parse_and_route_strict_{routes}": partial(_all, raw, _strict(contract)),
            f"parse_and_route_{routes}": partial(_all, raw, _fast(contract)),
            f"parse_and_route_orjson_{routes}": partial(_with_orjson, raw, _fast(contract)),
        }
    measured = together(list(actions.values()))
    times = {name: each / len(raw) for name, each in zip(actions, measured, strict=True)}
    plain = seconds(partial(_loop(contracts[AIM_ROUTES]), raw[0]), for_s=0.1)
    figures = [Figure("plain_loop_1000", 1 / plain, "events/s", note="every filter in turn, no index")]
    for name, cost in times.items():
        aim, _, routes = name.rpartition("_")
        faster = AIM_FASTER.get(aim) if routes.isdecimal() else None
        strict = times.get(f"parse_and_route_strict_{routes}", 0.0)
        figures.append(Figure(name, 1 / cost, "events/s", note=f"{cost * 1e6:.2f} us an event"))
        if faster is not None:
            aim_here = faster if int(routes) == AIM_ROUTES else None
            note = "to the strict reader with an index that remembers nothing"
            figures.append(Figure(f"{name}_to_strict", strict / cost, "ratio", aim_here, note=note))
    ratio = times["parse_and_route_10000"] / times["parse_and_route_10"]
    return [*figures, Figure("cost_10000_to_10", ratio, "ratio", AIM_COST_RATIO, higher_is_better=False)]


def _distinct() -> list[Figure]:
    """Return what the router's memory costs where no event finds its routes in it."""
    raw = [workload.event_of_its_own(number) for number in range(DISTINCT)]
    contract = workload.contract(AIM_ROUTES)
    router = _IndexOnly(contract)
    remembering, forgetting = together(
        [
            partial(_all, raw, _fast(contract)),
            partial(_all, raw, lambda text: router.route(parse_event(text))),
        ],
        for_s=0.5,
    )
    return [
        Figure(
            "distinct_with_memory_to_without",
            remembering / forgetting,
            "ratio",
            AIM_DISTINCT_RATIO * TOLERANCE,
            higher_is_better=False,
            note=f"{DISTINCT:,} events of different subjects in turn, {AIM_ROUTES:,} routes; "
            f"{remembering / len(raw) * 1e6:.2f} us to {forgetting / len(raw) * 1e6:.2f} us an event",
        )
    ]


def _remembered_bytes() -> Figure:
    """Return the memory that a full router holds, of events whose texts nobody else keeps."""
    router = Router(workload.contract(AIM_ROUTES), Place.CLOUD)
    tracemalloc.start()
    most = 0
    before = tracemalloc.get_traced_memory()[0]
    for number in range(DISTINCT):
        router.route(parse_strictly(workload.event_of_its_own(number)))
        most = max(most, tracemalloc.get_traced_memory()[0] - before)
    tracemalloc.stop()
    return Figure(
        "remembered_bytes",
        most / 2**20,
        "MiB",
        MAX_REMEMBERED_BYTES / 2**20,
        higher_is_better=False,
        note=f"the most while {DISTINCT:,} events with different subjects are routed",
    )


def _checks() -> Figure:
    """What it costs to stamp the sender, and to check that it may send this."""
    raw = [workload.event(number) for number in range(workload.EVENTS)]
    contract = workload.contract(AIM_ROUTES)
    router, rights = Router(contract, Place.CLOUD), SendingRights(contract)

    def checked(text: bytes) -> tuple[Route, ...]:
        event = parse_event(text)
        stamped = stamp_sender(event, sender_in_frame("home-1", event.attributes))
        if rights.refusal(stamped):
            raise SystemExit("the workload's device must be allowed to send its events")
        return router.route(stamped)

    def unchecked(text: bytes) -> tuple[Route, ...]:
        return router.route(parse_event(text))

    with_checks, without = together([partial(_all, raw, checked), partial(_all, raw, unchecked)])
    return Figure(
        "sender_checks",
        with_checks / without,
        "ratio",
        AIM_CHECKS_RATIO,
        higher_is_better=False,
        note=f"parse + stamp + rights + route of {AIM_ROUTES:,} routes; "
        f"{(with_checks - without) / len(raw) * 1e6:.1f} us an event more than parse + route. "
        "The rights are one look-up; the stamp copies attributes and text, "
        "which only a parse that stamps at once could save",
    )


class _IndexOnly:
    """A router that remembers nothing."""

    def __init__(self, contract: Contract) -> None:
        self._index = RouteIndex(contract.routes_at(Place.CLOUD))

    def route(self, event: Envelope) -> tuple[Route, ...]:
        return self._index.matching(event.attributes)


def _strict(contract: Contract) -> Callable[[bytes], tuple[Route, ...]]:
    """Return what parses and routes an event by the strict reader and the index alone."""
    router = _IndexOnly(contract)
    return lambda text: router.route(parse_strictly(text))


def _fast(contract: Contract) -> Callable[[bytes], tuple[Route, ...]]:
    """Return what parses and routes an event as functions and devices do."""
    router = Router(contract, Place.CLOUD)
    return lambda text: router.route(parse_event(text))


def _loop(contract: Contract) -> Callable[[bytes], tuple[Route, ...]]:
    """Return what parses an event and asks every route."""
    declared = contract.routes_at(Place.CLOUD)

    def plain(text: bytes) -> tuple[Route, ...]:
        attributes = parse_event(text).attributes
        return tuple(route for route in declared if route.filter.matches(attributes))

    return plain


def _check_matches(raw: bytes, contract: Contract) -> None:
    expected = contract.routes_at(Place.CLOUD)[:MATCHES]
    for route in (_strict(contract), _fast(contract), _loop(contract)):
        if route(raw) != expected:
            raise SystemExit("the router must take the first five routes, or less than all of it is measured")


def _with_orjson(raw: list[bytes], action: Callable[[bytes], object]) -> None:
    fast_reader.use_json(orjson.loads, orjson.dumps)
    try:
        _all(raw, action)
    finally:
        fast_reader.use_standard_json()


def _all(raw: list[bytes], action: Callable[[bytes], object]) -> None:
    for each in raw:
        action(each)


def _compilation() -> Figure:
    document = workload.contract_document(1_000)

    def compile_all() -> Router:
        return Router(workload.compile_contract(document, "benchmark"), Place.CLOUD)

    return Figure(
        "compile_1000_routes",
        seconds(compile_all),
        "s",
        AIM_COMPILE_S,
        higher_is_better=False,
        note="contract and index; an expression's function is made at its first candidate",
    )


def _peak_memory(routes: int) -> Figure:
    peak = _fresh(_PEAK.format(routes=routes))
    return Figure(f"peak_memory_{routes}", peak, "MiB", higher_is_better=False, note="of the whole process")


def _import_time() -> Figure:
    _fresh(_IMPORT)  # writes the bytecode
    standard = _IMPORT.replace("eventplane.router", _STANDARD)
    runs = [(_fresh(_IMPORT), _fresh(standard)) for _ in range(2 * RUNS)]
    core, library = (sorted(each) for each in zip(*runs, strict=True))
    return Figure(
        "import_core",
        median(core),
        "ms",
        AIM_IMPORT_MS,
        higher_is_better=False,
        note=f"fastest {core[0]:.0f} ms; {median(library):.0f} ms are the standard library's own "
        "(dataclasses alone load inspect), most of the rest makes the frozen dataclasses",
    )


def _fresh(code: str) -> float:
    """What `code` prints in a new interpreter that keeps bytecode, as an installed one does."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(FOLDER / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return float(done.stdout)


if __name__ == "__main__":
    main()
