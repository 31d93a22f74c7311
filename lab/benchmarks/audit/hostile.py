"""`python -m lab.benchmarks.audit.hostile`: hostile reports in a fleet, to build/bench/audit_hostile.json.

An archive without a fault is audited; then some of its devices have sent generated hostile reports as well,
and it is audited again. What the audit says of all other devices must be the same to the last byte. Exit
status 1 if it is not, or a device has more findings than it may.
"""

import gzip
import json
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

from edge import reports
from edge.numbering import stamp
from edge.spool import LossReport, Manifest, SpoolOrigin
from eventplane.envelope import Envelope, Sender, write_event
from eventplane.errors import EnvelopeError
from eventplane.names import EPOCH
from eventplane.reasons import Outcome
from eventplane.sending import stamp_sender
from glue_jobs.delivery_audit.device import MAX_FINDINGS
from glue_jobs.delivery_audit.findings import Kind
from lab.archive_generator.device import HOUR_MS
from lab.archive_generator.flows import Routing, audited_contracts
from lab.archive_generator.generator import START_MS, Scale, generate
from lab.archive_generator.objects import MadeObjects
from lab.archive_generator.records import Passage, right_case
from lab.audits import read_report
from lab.benchmarks.audit.bench import audit_command, environment
from lab.benchmarks.audit.proof import AS_OF, table_rows
from lab.benchmarks.processes import Measured, measured
from lab.benchmarks.results import Benchmark, Figure, none

MOST_TIMES: Final = 2.0
"""How many times the CPU time of the audit without hostile reports may be needed."""

DAY: Final = "2026-03-01"

_NUMBERS: Final = (-(2**70), -(2**62), -1, 0, 1, 2, 50, 10**6, 2**62, 10**30)
_VALUES: Final[tuple[Any, ...]] = (
    *(None, True, 1.5, "", "7", "x" * 4_000, [], {}, {"a": {"b": []}}, [[[[[[1]]]]]]),
    *([[1, 10**9]] * 300, [[number, number + 10_000] for number in range(2, 10**7, 20_000)]),
    *map(str, Kind),
    *map(str, Outcome),
    *_NUMBERS,
)


def hostile(report: Envelope, random: Random, epochs: list[str]) -> Any:
    """Return a report's data, changed in up to three places, so that much of it is nearly right."""
    data = report.data()
    for _ in range(random.randrange(1, 4)):
        data = _changed(data, random, [*_VALUES, *epochs])
    return data


def _changed(value: Any, random: Random, values: list[Any]) -> Any:
    """Return JSON with another value, member or length in some place."""
    if not value or not isinstance(value, dict | list) or random.random() < 0.1:
        return random.choice(values)
    places: list[Any] = list(value) if isinstance(value, dict) else list(range(len(value)))
    place, way = random.choice(places), random.random()
    if way < 0.8:
        inner = _changed(value[place], random, values)
        return (
            {**value, place: inner}
            if isinstance(value, dict)
            else [*value[:place], inner, *value[place + 1 :]]
        )
    if isinstance(value, list):
        return value * random.randrange(4)
    other = {name: each for name, each in value.items() if name != place}
    return other if way < 0.9 else {**value, "newer": random.choice(values)}


def honest(client: str, epoch: str, number: int, random: Random) -> Envelope:
    """Return a report as the forwarder of `client` writes it, of numbers that may be."""
    heading = reports.Heading(client, epoch, number, "2026-03-01T00:00:00Z")
    first, last = sorted(random.choices([*_NUMBERS[2:8], number], k=2))
    match random.randrange(3):
        case 0:
            return reports.started(heading, SpoolOrigin("recovered", "damage", 1, epoch[::-1]))
        case 1:
            ranges = tuple((start, start + 9) for start in range(first, min(last, first + 5_000), 20))
            ended = LossReport("device.outbox", Outcome.EXPIRED, "expirytime", last - first, ranges)
            return reports.discarded(heading, [ended], {})
    names = "device.outbox", "siren.inbox"
    stated = [Manifest(each, first, last, last - first + 1, random.getrandbits(128)) for each in names]
    pending = {"siren.inbox": [*range(last + 1, last + random.randrange(2, 50), 2)]}
    return reports.manifest(heading, stated, dict.fromkeys(names, last), 3_600, pending=pending)


def hostile_reports(
    clients: list[str], epochs: dict[str, str], count: int, random: Random
) -> Iterator[tuple[str, Envelope]]:
    """Yield hostile reports of `clients`, each in the epoch of a device in `epochs` or of no device."""
    everybody, place = [*epochs.values()], 0
    while place < count:
        client = clients[place % len(clients)]
        epoch = random.choice([epochs[client], epochs[client], random.choice(everybody), f"hostile-{place}"])
        number = random.choice([10**6 + place, random.randrange(1, 2_000), 10**17])
        report = honest(client, epoch, place, random)
        attributes = {"id": f"hostile-{place}", "source": report.source, "type": report.type}
        # What is too large for an event does not get into the archive.
        with suppress(EnvelopeError):
            report = write_event(attributes, hostile(report, random, everybody))
            yield client, stamp(stamp_sender(report, Sender(service="device")), epoch, number)
            place += 1


def _epochs(archive: Path) -> dict[str, str]:
    """Return the epoch of each device in an archive."""
    found: dict[str, str] = {}
    for path in sorted(archive.glob("tap/*/hour=00/*.json.gz")):
        for row in map(json.loads, gzip.decompress(path.read_bytes()).splitlines()):
            found.setdefault(row["client_id"], json.loads(row["event"])[EPOCH])
    return found


def _add(folder: Path, sent: Iterator[tuple[str, Envelope]], random: Random) -> None:
    """Let the archive have the rows of reports on their way without a fault, in objects of their own."""
    routing = Routing(audited_contracts()[0])
    with MadeObjects(folder / "hostile", 100_000) as objects:
        for place, (client, report) in enumerate(sent):
            at_ms = START_MS + random.randrange(11 * HOUR_MS)
            passage = Passage.in_frame(client, at_ms, 10**9 + place, 0, states_acknowledged=True)
            for row in right_case(report, passage, routing).rows():
                objects.add(*row)
    for path in (folder / "hostile").rglob("*.json.gz"):
        target = folder / "archive" / path.relative_to(folder / "hostile")
        path.rename(target.with_name(f"f{target.name[1:]}"))


def _audit(folder: Path, output: str) -> Measured:
    command = audit_command(folder / "archive", folder / output, DAY)
    return measured([*command, *AS_OF], environment())


def _said(output: Path) -> tuple[dict[str, list[str]], Counter[str], dict[str, Any]]:
    """Return what the audit says of each device, line by line, the numbers of findings, and the report."""
    said: dict[str, list[str]] = {}
    counts: Counter[str] = Counter()
    for table, of in (("devices", "client_id"), ("findings", "device")):
        for row in table_rows(output / table):
            if row[of] is None:
                continue  # a contradiction between two of them, which is no result of either
            said.setdefault(str(row[of]), []).append(json.dumps(row, sort_keys=True, default=str))
            counts[str(row[of])] += table == "findings"
    report = read_report(output, DAY)
    return {name: sorted(lines) for name, lines in said.items()}, counts, report


def measure(options: Namespace) -> list[Figure]:
    """Audit a fleet without and with hostile reports, and compare."""
    random = Random(options.seed)
    with TemporaryDirectory(prefix="audit-hostile-") as name:
        folder = Path(name)
        events = options.devices * 24 * options.events_an_hour
        plan = Scale(events, events_an_hour=options.events_an_hour, fault_every=0, trouble_every=0)
        generate(folder, plan, audited_contracts())
        before = _audit(folder, "before")
        said, _, _ = _said(folder / "before")
        epochs = _epochs(folder / "archive")
        clients = random.sample(sorted(epochs), options.hostile)
        _add(folder, hostile_reports(clients, epochs, options.reports, random), random)
        after = _audit(folder, "after")
        now, counts, report = _said(folder / "after")
    others = (said.keys() | now.keys()).difference(clients)
    most = max(counts[each] for each in clients)
    differing = sorted(each for each in others if said.get(each) != now.get(each))
    return [
        Figure("reports", options.reports, "reports", note=f"of {len(clients)} devices; {report['verdict']}"),
        Figure("devices", len(said), "devices", note=f"{plan.events:,} events"),
        none("differing", len(differing), "devices", f"of the others: {differing[:9]}"),
        Figure("most_findings", most, "findings", MAX_FINDINGS, False, required=True),
        Figure("cpu_ratio", round(after.cpu_s / before.cpu_s, 2), "x", MOST_TIMES, False),
        Figure("cpu", after.cpu_s, "CPU-s", peer="without", peer_value=before.cpu_s),
        Figure("memory", after.peak_mib, "MiB", peer="without", peer_value=before.peak_mib),
    ]


BENCHMARK = Benchmark(
    "audit_hostile",
    {"hostile": measure},
    "CPU time of all processes of one audit",
    {
        "--devices": {"type": int, "default": 1_000},
        "--events-an-hour": {"type": int, "default": 5},
        "--reports": {"type": int, "default": 10_000},
        "--hostile": {"type": int, "default": 20, "help": "devices that send them"},
        "--seed": {"type": int, "default": 1},
    },
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
