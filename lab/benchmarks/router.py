"""Measure the router: `make bench-router` writes build/bench/router.json. One core, a minute."""

import json
import os
import subprocess
import sys
import tracemalloc
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

import orjson

from eventplane import other_json
from eventplane.cesql import parse
from eventplane.contract import Contract, Place, Route, compile_contract
from eventplane.envelope import parse_event, parse_strictly, sender_in_frame
from eventplane.limits import MAX_REMEMBERED_BYTES
from eventplane.route_index import RouteIndex
from eventplane.router import Router
from eventplane.sending import SendingRights, stamp_sender
from lab.benchmarks import workload
from lab.benchmarks.results import FOLDER, RUNS, Benchmark, Figure, seconds, together

ROUTES = (10, 1_000, 10_000)
AIM_ROUTES = 1_000
AIM_FASTER = {"parse_and_route": 2.5, "parse_and_route_orjson": 4.0}
"""How many times the events per second of the strict reader with the index alone, in the same run."""
AIM_COST_RATIO = 1.2
AIM_CHECKS_RATIO = 1.05
AIM_MEMORY_RATIO = 1.03
"""What the router's memory may cost where no event finds its routes in it; 0.03 of it is noise."""
AIM_COMPILE_S = 0.5
AIM_IMPORT_MS = 40.0
DISTINCT = 8_000
"""Events whose subjects all differ: more than the router remembers."""
MATCHES = 5
"""Routes that each event of the workload takes."""

FILTERS = {
    "three_terms": "type = 'org.example.alarm.v1' AND severitynumber >= 17 AND subject LIKE '/kitchen/%'",
    "one_equality": "type = 'org.example.alarm.v1'",
    "in_of_five": "type IN ('a.b', 'c.d', 'e.f', 'g.h', 'org.example.alarm.v1')",
    "functions": "LENGTH(subject) > 5 AND UPPER(LEFT(source, 6)) = '/HOMES'",
}
CESQL_AIMS_US = {"three_terms": 0.3}
CESQL_EVENT: dict[str, str | int | bool] = {
    "specversion": "1.0",
    "id": "8d3f7a1e-55f1-4b7c-9d55-0a4e5d3a2b1c",
    "source": "/homes/0017/voice",
    "type": "org.example.alarm.v1",
    "subject": "/kitchen/microphone",
    "time": "2026-01-01T00:00:00.000Z",
    "severitynumber": 21,
}

_IMPORT = (
    "import time; t = time.process_time(); import eventplane.router; print((time.process_time() - t) * 1e3)"
)
_PEAK = """
from eventplane.contract import Place
from eventplane.envelope import parse_event
from eventplane.router import Router
from eventplane.envelope import sender_in_frame
from eventplane.sending import SendingRights, stamp_sender
from lab.benchmarks import workload
router = Router(workload.contract({routes}), Place.CLOUD)
for number in range(workload.EVENTS):
    router.route(parse_event(workload.event(number)))
with open("/proc/self/status") as status:  # getrusage would count the parent's memory as well
    print(next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM")))
"""

_Route = Callable[[bytes], tuple[Route, ...]]
"""Parses and routes one event."""


def routing(_options: Namespace) -> Iterator[Figure]:
    """Measure parse and route with each reader, all in one run."""
    raw = [workload.event(number) for number in range(workload.EVENTS)]
    actions: dict[str, Callable[[], None]] = {
        "json_loads": partial(_all, raw, json.loads),
        "orjson_loads": partial(_all, raw, orjson.loads),
        "parse_strict": partial(_all, raw, parse_strictly),
        "parse": partial(_all, raw, parse_event),
        "parse_orjson": partial(_with_orjson, raw, parse_event),
    }
    for routes in ROUTES:
        contract = workload.contract(routes)
        _check_matches(raw[0], contract)
        actions |= {
            f"parse_and_route_strict_{routes}": partial(_all, raw, _strict(contract)),
            f"parse_and_route_{routes}": partial(_all, raw, _fast(contract)),
            f"parse_and_route_orjson_{routes}": partial(_with_orjson, raw, _fast(contract)),
        }
    measured = together(list(actions.values()))
    times = {name: each / len(raw) for name, each in zip(actions, measured, strict=True)}
    for name, cost in times.items():
        yield Figure(name, 1 / cost, "events/s", note=f"{cost * 1e6:.2f} us an event")
        reader, _, number = name.rpartition("_")
        if reader in AIM_FASTER:
            faster = times[f"parse_and_route_strict_{number}"] / cost
            aim = AIM_FASTER[reader] if int(number) == AIM_ROUTES else None
            yield Figure(f"{name}_to_strict", faster, "ratio", aim)
    ratio = times["parse_and_route_10000"] / times["parse_and_route_10"]
    yield Figure("cost_10000_to_10", ratio, "ratio", AIM_COST_RATIO, higher_is_better=False)


def cesql(_: Namespace) -> Iterator[Figure]:
    """Measure the evaluation of an expression, calls included."""
    return map(_evaluation, FILTERS)


def _evaluation(name: str) -> Figure:
    """The time of one evaluation of FILTERS[`name`], compiled, with the walk over the tree as its peer."""
    text = FILTERS[name]
    expression = parse(text)
    if not expression.matches(CESQL_EVENT):
        raise SystemExit(f"{name} must match the event, or less than all of it is measured")
    actions = [partial(expression.matches, CESQL_EVENT), partial(expression.evaluate, CESQL_EVENT)]
    compiled, walked = (each * 1e6 for each in together(actions))
    return Figure(
        f"cesql_{name}",
        compiled,
        "us",
        CESQL_AIMS_US.get(name),
        peer="tree walk",
        peer_value=walked,
        note=f"{1e6 / compiled:,.0f} evaluations/s; {text}",
    )


def distinct(_: Namespace) -> Iterator[Figure]:
    """Measure the router's memory where no event finds its routes in it."""
    raw = [workload.event_of_its_own(number) for number in range(DISTINCT)]
    contract = workload.contract(AIM_ROUTES)
    actions = [partial(_all, raw, _fast(contract)), partial(_all, raw, _forgetting(contract))]
    with_memory, without = together(actions, for_s=0.5)
    note = f"{DISTINCT:,} events of different subjects in turn, {AIM_ROUTES:,} routes; "
    note += f"{with_memory / len(raw) * 1e6:.2f} us to {without / len(raw) * 1e6:.2f} us an event"
    ratio = with_memory / without
    yield Figure(
        "distinct_with_memory_to_without", ratio, "ratio", AIM_MEMORY_RATIO, higher_is_better=False, note=note
    )


def checks(_: Namespace) -> Iterator[Figure]:
    """Measure the stamp of the sender, and the check that it may send this."""
    raw = [workload.event(number) for number in range(workload.EVENTS)]
    contract = workload.contract(AIM_ROUTES)
    router, rights = Router(contract, Place.CLOUD), SendingRights(contract)

    def checked(text: bytes) -> tuple[Route, ...]:
        event = parse_event(text)
        stamped = stamp_sender(event, sender_in_frame("home-1", event.attributes))
        if rights.refusal(stamped):
            raise SystemExit("the workload's device must be allowed to send its events")
        return router.route(stamped)

    with_checks, without = together([partial(_all, raw, checked), partial(_all, raw, _fast(contract))])
    note = f"parse + stamp + rights + route of {AIM_ROUTES:,} routes; "
    note += f"{(with_checks - without) / len(raw) * 1e6:.1f} us an event more than parse + route. "
    note += "The rights are one look-up; the stamp copies attributes and text, "
    note += "which only a parse that stamps at once could save"
    ratio = with_checks / without
    yield Figure("sender_checks", ratio, "ratio", AIM_CHECKS_RATIO, higher_is_better=False, note=note)


def memory(_: Namespace) -> Iterator[Figure]:
    """The memory of a full router, with events that only it keeps, and of a whole process."""
    router = Router(workload.contract(AIM_ROUTES), Place.CLOUD)
    tracemalloc.start()
    most = 0
    before = tracemalloc.get_traced_memory()[0]
    for number in range(DISTINCT):
        router.route(parse_strictly(workload.event_of_its_own(number)))
        most = max(most, tracemalloc.get_traced_memory()[0] - before)
    tracemalloc.stop()
    note = f"the most while {DISTINCT:,} events with different subjects are routed"
    bound = MAX_REMEMBERED_BYTES / 2**20
    yield Figure("remembered_bytes", most / 2**20, "MiB", bound, note=note)
    for routes in ROUTES:
        peak = _fresh(_PEAK.format(routes=routes))
        yield Figure(f"peak_memory_{routes}", peak, "MiB", note="of the whole process")


def start(_: Namespace) -> Iterator[Figure]:
    """The time to compile a contract, and to import the core in a new process."""
    document = workload.contract_document(AIM_ROUTES)
    took = seconds(lambda: Router(compile_contract(document, "benchmark"), Place.CLOUD))
    note = "contract and index; an expression's function is made at its first candidate"
    yield Figure("compile_1000_routes", took, "s", AIM_COMPILE_S, note=note)
    _fresh(_IMPORT)  # writes the bytecode
    imports = [_fresh(_IMPORT) for _ in range(2 * RUNS)]
    note = f"fastest {min(imports):.0f} ms; most of it loads dataclasses and makes the frozen ones"
    yield Figure("import_core", median(imports), "ms", AIM_IMPORT_MS, note=note)


def _strict(contract: Contract) -> _Route:
    """Return what parses and routes an event by the strict reader and the index alone."""
    index = RouteIndex(contract.routes_at(Place.CLOUD))
    return lambda text: index.matching(parse_strictly(text).attributes)


def _forgetting(contract: Contract) -> _Route:
    """Return what parses an event as functions and devices do, and routes it by the index alone."""
    index = RouteIndex(contract.routes_at(Place.CLOUD))
    return lambda text: index.matching(parse_event(text).attributes)


def _fast(contract: Contract) -> _Route:
    """Return what parses and routes an event as functions and devices do."""
    router = Router(contract, Place.CLOUD)
    return lambda text: router.route(parse_event(text))


def _check_matches(raw: bytes, contract: Contract) -> None:
    expected = contract.routes_at(Place.CLOUD)[:MATCHES]
    for route in (_strict(contract), _fast(contract)):
        if route(raw) != expected:
            raise SystemExit("the router must take the first five routes, or less than all of it is measured")


def _with_orjson(raw: list[bytes], action: Callable[[bytes], object]) -> None:
    other_json.use_json(orjson.loads, orjson.dumps)
    try:
        _all(raw, action)
    finally:
        other_json.use_standard_json()


def _all(raw: list[bytes], action: Callable[[bytes], object]) -> None:
    for each in raw:
        action(each)


def _fresh(code: str) -> float:
    """What `code` prints in a new interpreter that keeps bytecode, as an installed one does."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(FOLDER / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return float(done.stdout)


_PARTS = {
    "routing": routing,
    "cesql": cesql,
    "distinct": distinct,
    "checks": checks,
    "memory": memory,
    "start": start,
}

if __name__ == "__main__":
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    sys.exit(Benchmark("router", _PARTS).main())
