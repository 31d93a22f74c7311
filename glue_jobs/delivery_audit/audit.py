"""The audit itself: from an archive to what it found.

What the archive has of one event is an event group, judged in Python (`judge`). An `AuditEngine` brings the
rows of a group together: `small` in this process, of a small archive; `large` in Spark, where a screen counts
the events with which nothing is wrong.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

from eventplane.archive_layout import (
    AUDIT_DEVICES_FOLDER,
    HANDOVERS_FOLDER,
    LEDGER_FOLDER,
    PUBLISHED,
    TAP_FOLDER,
    Column,
    Folder,
)
from eventplane.contract.publication import HEADS
from eventplane.ledger import LEDGER, TAP
from glue_jobs.common import system
from glue_jobs.common.archive import ArchivePart, columns_of
from glue_jobs.common.attestation import AttestationKey
from glue_jobs.common.hours import Days
from glue_jobs.common.listing import Listing, ObjectFault
from glue_jobs.common.objects import Objects
from glue_jobs.delivery_audit.chain import Chain, Past, chain_of
from glue_jobs.delivery_audit.completeness import Scope
from glue_jobs.delivery_audit.contracts import ContractHistory, archived, load_history
from glue_jobs.delivery_audit.coverage import (
    Coverage,
    absent_hours,
    damaged_hours,
    gone_hours,
    hole_findings,
    hours_of_gone,
    missing_rows,
    with_altered,
)
from glue_jobs.delivery_audit.devices import (
    Counts,
    Devices,
    Fleet,
    Listed,
    by_client,
    judge_fleet,
    read_registry,
)
from glue_jobs.delivery_audit.errors import EmptyWindowError, NoArchiveError
from glue_jobs.delivery_audit.event_group import (
    BadRow,
    DeliveryRow,
    HoleCount,
    LedgerRow,
    NotInTap,
    ReplayRow,
    RouteCount,
    Ruling,
)
from glue_jobs.delivery_audit.figures import Figures
from glue_jobs.delivery_audit.findings import Finding
from glue_jobs.delivery_audit.judging import (
    Judged,
    Task,
    ledger_hours,
    letters_of_readers,
    ordered_inboxes,
    unreadable_hours,
    usages,
)
from glue_jobs.delivery_audit.rules import Rules, Watermark, Window

PYTHON: Final = "python"
SPARK: Final = "spark"
"""What reads the archive: this process, or Spark."""

FOUND: Final[Mapping[str, list[Column]]] = {
    "finding": columns_of(Finding),
    "replay": columns_of(ReplayRow),
    "bad": columns_of(BadRow),
    "not_in_tap": columns_of(NotInTap),
    "delivery": columns_of(DeliveryRow),
    "day": [*map(Column, AUDIT_DEVICES_FOLDER.partitions), *AUDIT_DEVICES_FOLDER.columns],
}
"""What is found row by row, by kind: of events, and of devices by `day`."""

FOLDERS: Final = (TAP_FOLDER, LEDGER_FOLDER, HANDOVERS_FOLDER)

Found = Any
"""What was found, by the kinds of `FOUND` as keys: lists of rows, or Spark's tables (`large.FoundTable`)."""


@dataclass(frozen=True, slots=True)
class Audit:
    """The result. `parts` are the folders of the archive as they were read.

    Of what was found, the chain's findings are left out. `found` is what the judges found of events and
    devices. `findings` are the worst of that, and all others, the `others`; `kinds` counts all by kind and
    hop. `engine` is `PYTHON` or `SPARK`. `is_listed` and `late_days` are the request's.
    """

    window: Window
    watermark: Watermark
    history: ContractHistory
    judged: Judged
    figures: Figures
    fleet: Fleet
    coverage: Coverage
    found: Found
    others: list[Finding]
    parts: dict[str, ArchivePart]
    chain: Chain
    engine: str
    is_listed: bool = False
    late_days: Sequence[str] | None = None

    @property
    def findings(self) -> list[Finding]:
        """The worst findings of events, and all others."""
        return [*self.judged.worst, *self.fleet.findings, *self.others]

    @property
    def kinds(self) -> Counter[tuple[str, str]]:
        """The number of findings of each kind at each hop."""
        others = Counter((str(each.kind), str(each.hop)) for each in self.others)
        return self.judged.kinds + self.fleet.kinds + others


def plain(value: Any) -> Any:
    """Return a value for other programs: an enumeration's member is a text in Python alone."""
    return str(value) if isinstance(value, StrEnum) else value


def progress(text: str) -> None:
    """Say on standard error what is being done, for people who wait."""
    sys.stderr.write(f"{system.now():%H:%M:%S} {text}\n")
    sys.stderr.flush()


def _now_ms() -> int:
    return int(system.now().timestamp() * 1_000)


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """A request for an audit: the archive `objects`, with the audits before in `output`.

    Receipts count that `key` has attested. `fleet` is a file with the devices that are expected, None: the
    list in the archive. Where `is_listed` each delivery has a row. `late_days` are judged again afterwards;
    None: they were not searched. `now_ms` is the clock, Unix milliseconds; `progress` is called with what is
    being done, for people who wait.
    """

    objects: Objects
    output: Objects
    work: Objects
    window: Window
    watermark: Watermark
    key: AttestationKey
    fleet: str | None = None
    is_listed: bool = False
    late_days: Sequence[str] | None = None
    now_ms: Callable[[], int] = _now_ms
    progress: Callable[[str], None] = progress


@dataclass(frozen=True, slots=True)
class Read:
    """The content of all folders: their `parts`, the ledger's own word, and what judges it all.

    `decisions` name every contract, time, channel and hour in the ledger, `history` has the contracts that
    route the tap's events, and `faults` those that cannot be read. `dead_letters` are the ids of those of the
    plane's own that somebody received, and among `letters` are the rows of those of readers.
    `nameless` are an archive and the folder of an hour for the rows that cannot be judged and name no event.
    `screened` takes how events are to be judged, and returns what judges them by rules. `devices` takes what
    was found of events, their counts and the fleet's list.
    """

    parts: dict[str, ArchivePart]
    decisions: Iterable[LedgerRow]
    history: ContractHistory
    faults: list[ObjectFault]
    dead_letters: frozenset[str]
    letters: Iterable[LedgerRow]
    nameless: Iterable[tuple[str, str]]
    screened: Callable[[Task], Callable[[Rules], tuple[Judged, Found]]]
    devices: Callable[[Found, Counts, Listed | None], Devices]


class AuditEngine(Protocol):
    """Reads an archive, and brings together what it has of one event and of one device."""

    @property
    def name(self) -> str:
        """`PYTHON` or `SPARK`."""

    def listed(self, folder: Folder, days: Days, key: AttestationKey) -> Listing:
        """List what a folder holds of some days."""

    def read(
        self,
        listings: Mapping[str, Listing],
        history_of: Callable[[Iterable[LedgerRow]], tuple[ContractHistory, list[ObjectFault]]],
    ) -> Read:
        """Read all folders; `history_of` takes `Read.decisions`, and returns `Read.history` and `faults`."""


def audit(engine: AuditEngine, request: AuditRequest) -> Audit:
    """Audit what the request asks for.

    Raises `NoArchiveError`, `NoContractError`, `AlteredContractError`, `EmptyWindowError`.
    """
    objects, window, watermark = request.objects, request.window, request.watermark
    places = (f"{place}{each}" for place in ("", f"{PUBLISHED}/") for each in (TAP, LEDGER))
    if not any(map(objects.folders, places)):
        raise NoArchiveError(objects.uri)
    request.progress(f"reading {objects.uri}")
    listings = {each.name: engine.listed(each, window.folders, request.key) for each in FOLDERS}
    contracts = archived(objects)
    # A single contract is in force all the time; else the ledger is asked.
    read = engine.read(
        listings, lambda rows: load_history(objects, contracts, usages(rows) if len(contracts) != 1 else [])
    )
    history = read.history
    known = {each.version for each in history.contracts}
    chain = chain_of(
        objects,
        request.key,
        Past(request.output, str(window)),
        read.parts,
        window.folders,
        [contracts[name] for name in contracts if name in known or name.startswith(HEADS)],
        min(watermark.as_of_ms, request.now_ms()),
    )
    parts = with_altered(read.parts, chain.removed())
    seen = ledger_hours(read.decisions, history.uplinks, history.webhooks)
    damaged = damaged_hours(parts, seen, unreadable_hours(read.nameless), chain.removed())
    redacted = chain.attested.erased_hours(TAP)
    rules = Rules(history, watermark, window, damaged, redacted, missing_rows(parts), request.is_listed)
    given_up = letters_of_readers(read.letters)
    judge = read.screened(Task(rules, read.dead_letters, ordered_inboxes(history), given_up=given_up))
    judged, found = judge(rules)
    while fewer := rules.within_rows(judged.judgement.counts):
        rules = fewer
        judged, found = judge(rules)
    request.progress("judging the devices")
    registry, lists = read_registry(objects, window, request.fleet)
    fleet, found = judge_fleet(
        read.devices(found, by_client(judged.judgement.counts), registry.rows if registry else None),
        Scope(
            frozenset(history.uplinks),
            watermark.ms,
            history.homes,
            1_000 * watermark.lateness_s,
            end_ms=window.span_ms[1] + 1 if window.last else None,
            gone=gone_hours(damaged, parts[TAP]),
            damaged=frozenset(each.number for each in damaged.get(TAP, ())),
            has_fleet=registry is not None,
            is_listed=request.is_listed,
        ),
        absent=absent_hours(parts[TAP]),
        held=hours_of_gone(parts[TAP]),
    )
    counts = judged.judgement.counts
    # The tap has a hole where they would be: they are not unexplained.
    for where, count in fleet.recovered.items():
        counts[RouteCount(Ruling.UNEXPLAINED, *where)] -= count
        counts[RouteCount(Ruling.UNRECORDED, *where)] += count
    figures = Figures(judged)
    coverage = fleet.coverage(registry.name if registry else None, figures.cloud_events)
    # Where devices are expected, their silence is something to report.
    if judged.accepted_ms is None and not counts and not coverage.devices["expected"]:
        raise EmptyWindowError(objects.uri, str(window))
    faults = [*(fault for part in parts.values() for fault in part.faults), *read.faults, *lists]
    holes = {key: n for key, n in counts.items() if isinstance(key, HoleCount)}
    return Audit(
        window=window,
        watermark=watermark,
        history=history.with_uses(judged.first_decided_ms),
        judged=judged,
        figures=figures,
        fleet=fleet,
        coverage=coverage,
        found=found,
        others=list(hole_findings(parts, faults, holes, fleet.holes)),
        parts=parts,
        chain=chain,
        engine=engine.name,
        is_listed=request.is_listed,
        late_days=request.late_days,
    )
