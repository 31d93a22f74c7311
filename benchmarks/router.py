"""How fast the router is: `make bench-router` writes build/bench/router.json. One core, half a minute."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from statistics import median

from benchmarks import cesql, workload
from benchmarks.results import FOLDER, RUNS, Figure, seconds, together, write
from eventplane.contract import Place, Route
from eventplane.envelope import parse_event
from eventplane.router import Router
from eventplane.sender import sender_in_frame
from eventplane.sending import SendingRights, stamp_sender

ROUTES = (5, 10, 100, 1_000, 10_000)
AIM_EVENTS_PER_S = 200_000
AIM_ROUTES = 1_000
AIM_COST_RATIO = 1.2
AIM_CHECKS_RATIO = 1.05
AIM_COMPILE_S = 0.5
AIM_IMPORT_MS = 30.0
MATCHES = 5
"""Routes that each event of the workload takes."""

_IMPORT = (
    "import time; t = time.perf_counter(); import eventplane.router; print((time.perf_counter() - t) * 1e3)"
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
    """Measure, write, print."""
    figures = [
        *_routing(),
        _checks(),
        cesql.evaluation("three_terms"),
        _compilation(),
        *(_peak_memory(routes) for routes in (10, 1_000, 10_000)),
        _import_time(),
    ]
    write("router", figures, "make bench-router")


def _routing() -> list[Figure]:
    raw = [workload.event(number) for number in range(workload.EVENTS)]
    pairs = {routes: _routers(raw[0], routes) for routes in ROUTES}
    actions = [partial(_all, raw, json.loads), partial(_all, raw, parse_event)]
    actions += [partial(_all, raw, indexed) for indexed, _ in pairs.values()]
    reading, parsing, *indexed = (each / len(raw) for each in together(actions))
    # The plain loop takes milliseconds an event.
    plain = together([partial(loop, raw[0]) for _, loop in pairs.values()], for_s=0.1)
    costs = dict(zip(ROUTES, indexed, strict=True))
    limit = (
        f"the limit is reading the text: json.loads alone takes {reading * 1e6:.1f} us, the strict parse "
        f"{parsing * 1e6:.1f} us, of the {1e6 / AIM_EVENTS_PER_S:.0f} us that the aim allows "
        "(docs/adr/0005-json-reader.md)"
    )
    figures = [
        Figure(
            f"parse_and_route_{routes}",
            1 / cost,
            "events/s",
            AIM_EVENTS_PER_S if routes == AIM_ROUTES else None,
            peer="parse + plain loop",
            peer_value=1 / loop,
            note=limit if routes == AIM_ROUTES else "",
        )
        for (routes, cost), loop in zip(costs.items(), plain, strict=True)
    ]
    return [
        *figures,
        Figure("parse", 1 / parsing, "events/s", peer="json.loads, not strict", peer_value=1 / reading),
        Figure(
            "cost_10000_to_10",
            costs[10_000] / costs[10],
            "ratio",
            AIM_COST_RATIO,
            higher_is_better=False,
            note=f"parse + route; without the parse {(costs[10_000] - parsing) * 1e6:.1f} us "
            f"to {(costs[10] - parsing) * 1e6:.1f} us; the event takes the same five routes",
        ),
    ]


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


def _routers(raw: bytes, routes: int) -> tuple[Callable[[bytes], object], Callable[[bytes], object]]:
    """What parses and routes an event: by the router, and by asking every route."""
    contract = workload.contract(routes)
    router = Router(contract, Place.CLOUD)
    declared = contract.routes_at(Place.CLOUD)

    def indexed(text: bytes) -> tuple[Route, ...]:
        return router.route(parse_event(text))

    def plain(text: bytes) -> tuple[Route, ...]:
        attributes = parse_event(text).attributes
        return tuple(route for route in declared if route.filter.matches(attributes))

    if not indexed(raw) == plain(raw) == declared[:MATCHES]:
        raise SystemExit("the router must take the first five routes, or less than all of it is measured")
    return indexed, plain


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
