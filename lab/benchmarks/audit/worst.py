"""`python -m lab.benchmarks.audit.worst`: days on which little is ordinary, to build/bench/audit_worst.json.

On such a day the screen spares nothing, and the audit must end within the memory of its machine all the same,
with the right verdict. The archive is generated without a fault; then it is damaged.
"""

import gzip
import json
import re
import shutil
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from lab.archive_generator.flows import audited_contracts
from lab.archive_generator.generator import Scale, generate
from lab.audits import read_report
from lab.benchmarks.audit.bench import AIM_MEMORY_MIB, audit_command, environment
from lab.benchmarks.processes import measured
from lab.benchmarks.results import Benchmark, Figure, none
from lab.demo.faults import write_as_its_writer

EVENTS: Final = 5_000_000
LESS: Final = 5
"""How many times fewer events the days have on which single findings are made."""

_HOURS: Final = 24
_DELIVERY: Final = re.compile(
    r'(?=.*"entered_by":"device\.outbox")(?=.*"outcome":"delivered")(?!.*"destination":"(alarm-centre|nurse)\.inbox")'
)
"""A line of the ledger that says that a device's event was delivered, where no handover says so too."""


@dataclass(frozen=True, slots=True)
class Day:
    """`plant` damages the archive of `plan` and returns what the report must count."""

    plan: Scale
    plant: Callable[[Path], Mapping[str, int]]


def _plan(events: int) -> Scale:
    return Scale(events, hours=_HOURS, fault_every=0, trouble_every=0)


def _one_device(events: int) -> Scale:
    return replace(_plan(events), events_an_hour=max(1, events // _HOURS))


def dead_ledger(archive: Path) -> dict[str, int]:
    """The routers' records are gone: a hole of the archive, and no hop is reported as its cause."""
    shutil.rmtree(archive / "ledger")
    return {"lost": 0, "broken": 0}


def half_wrong(archive: Path) -> dict[str, int]:
    """Plant faults: of four deliveries the ledger lacks one and has one on a route that no contract has."""
    delivered = wrong = 0
    for path in sorted((archive / "ledger").rglob("*.gz")):
        kept = []
        for line in gzip.decompress(path.read_bytes()).decode().splitlines():
            if _DELIVERY.match(line):
                delivered += 1
                if delivered % 4 == 0:
                    continue
                if delivered % 4 == 2:
                    wrong += 1
                    line = re.sub('"route":"[^"]*"', '"route":"nobody-declared-it"', line)
            kept.append(line)
        write_as_its_writer(archive, path.relative_to(archive), [each.encode() for each in kept])
    return {"lost": delivered // 4 + wrong, "misrouted router": wrong}


def nothing(_: Path) -> dict[str, int]:
    """The archive stays as it is."""
    return {"lost": 0, "broken": 0}


DAYS: Final[Mapping[str, Callable[[int], Day]]] = {
    "dead_ledger": lambda events: Day(_plan(events), dead_ledger),
    "half_wrong": lambda events: Day(_plan(events // LESS), half_wrong),
    "one_device": lambda events: Day(_one_device(events // LESS), nothing),
}
"""Days by name, for a number of events."""


def counted(report: Mapping[str, Any]) -> dict[str, int]:
    """Return what a report counts: totals, findings by kind and hop, and those that break a promise."""
    kinds = report["kinds"]
    found = {f"{each['kind']} {each['hop']}": each["count"] for each in kinds}
    return {**report["totals"], **found, "broken": sum(each["weight"] == "broken" for each in kinds)}


def measure(name: str, options: Namespace) -> Iterator[Figure]:
    """Generate, damage and audit a day, and yield what it took."""
    day = DAYS[name](options.events)
    with TemporaryDirectory(prefix="audit-worst-") as place:
        folder = Path(place)
        events = generate(folder, day.plan, audited_contracts())["events"]
        expected = day.plant(folder / "archive")
        took = measured(audit_command(folder / "archive", folder / "audit"), environment())
        found = counted(read_report(folder / "audit"))
    wrong = {each: found.get(each, 0) for each in expected if found.get(each, 0) != expected[each]}
    if wrong:
        print(f"{name}: {json.dumps(wrong)}, and not {json.dumps(expected)}", file=sys.stderr)
    note = f"of {events:,} events"
    memory = f"{note}; resident, all processes together"
    yield none(f"{name}_wrong", len(wrong), "counts", note)
    yield Figure(f"{name}_memory", took.peak_mib, "MiB", AIM_MEMORY_MIB, note=memory, required=True)
    yield Figure(f"{name}_cpu", took.cpu_s, "CPU-s", note=note)
    yield Figure(f"{name}_seconds", took.seconds, "s", note=note)


BENCHMARK = Benchmark(
    "audit_worst",
    {name: partial(measure, name) for name in DAYS},
    "one run; CPU-seconds of all its processes together, wall clock where it says so",
    {"--events": {"type": int, "default": EVENTS}},
    notes_load=True,
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
