"""The basis of the proof: what attests events, and where the archive itself lacks records. No Spark."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from eventplane.archive_layout import COMPACTIONS
from eventplane.ledger import HANDOVERS, LEDGER, TAP
from eventplane.report_reader import USUAL_INTERVAL_S, Birth, ManifestReport, Range
from eventplane.written import WRITTEN
from glue_jobs.common.hours import Hour, hour_of
from glue_jobs.common.listing import Gone, place_of, statement_of
from glue_jobs.delivery_audit.completeness import Completeness
from glue_jobs.delivery_audit.event_group import HOUR_MS, HoleCount
from glue_jobs.delivery_audit.findings import Finding, Hop, Kind
from glue_jobs.delivery_audit.number_ranges import clipped, without
from glue_jobs.delivery_audit.rules import LATE_DAYS, MissingRows

if TYPE_CHECKING:
    from glue_jobs.common.archive import ArchivePart
    from glue_jobs.common.listing import ObjectFault

RESTS: Final = ("manifest", "numbering", "tap", "nothing")
"""What an event of a device can rest on: a manifest states its number; it has one that no manifest states; it
has none; an unseen number that nobody states may be an event or not."""

_NO_END: Final = 1 << 62
"""Higher than any number."""


class Attendance(StrEnum):
    """The standing of a device in the window."""

    ATTESTED = "attested"
    """Its manifests form an unbroken chain until one interval before the window's end or the watermark."""
    PARTLY = "partly"
    """It sent, and its manifests do not state all of it."""
    SILENT = "silent"
    """It is expected, and nothing came."""
    UNREGISTERED = "unregistered"
    """It sent, and the fleet's registry does not know it."""


class Attestation:
    """The reach of the manifests of one device."""

    def __init__(self, completeness: Completeness) -> None:
        self._completeness = completeness
        seen, scope, chains = completeness.seen, completeness.scope, completeness.manifests
        self.newest: ManifestReport | None = max(
            (chain[-1] for chain in chains.values()), key=_at_ms, default=None
        )
        """The newest manifest that counts."""
        # A store that begins after the window excuses no manifest of the one before.
        births = [
            each
            for each in completeness.reports.births.values()
            if scope.end_ms is None or _at_ms(each) < scope.end_ms
        ]
        born = max(births, key=_at_ms, default=None)
        self._next: tuple[str, int] | None = None
        """Epoch and first number that the next manifest will state; None where nothing announces one."""
        self.is_overdue = True
        """Whether a manifest is missing at the end: the next one should have come by now."""
        if born is not None and born.epoch not in chains:
            # The store began anew: no manifest will continue the chain of the one before.
            self._next = born.epoch, 1
            self.is_overdue = _at_ms(born) + 1_000 * USUAL_INTERVAL_S < scope.until_ms
        elif self.newest is not None:
            epoch = self.newest.epoch
            spans = [each.span for each in chains[epoch] if each.span is not None]
            # What was stored along with a manifest has a lower number, and is stated by the next one.
            first = max((last for _, last in spans), default=self.newest.sequence) + 1
            self._next = epoch, first
            # The last one covers nothing behind it: the device may go on, and all of that be gone. But an
            # audit of all days has no end until which anything is due: some device is always the last.
            numbers = seen[epoch].ranges if epoch in seen else []
            is_last = not clipped(without(numbers, completeness.attested(epoch)), (first, _NO_END))
            has_ended = scope.end_ms is None and self.newest.is_final and is_last
            due_ms = _at_ms(self.newest) + self.newest.interval_ms
            self.is_overdue = due_ms < scope.until_ms and not has_ended

    def awaiting(self, epoch: str) -> list[Range]:
        """Return the numbers of an epoch that the next manifest will state, if it need not be there yet."""
        if self._next is None or self.is_overdue or self._next[0] != epoch:
            return []
        return [(self._next[1], _NO_END)]

    def standing(
        self, days: Sequence[Mapping[str, Any]], *, is_expected: bool, is_known: bool
    ) -> Attendance | None:
        """Return what is known of a device with these figures by day, None for one that is no concern."""
        if not any(day["events"] for day in days):
            return Attendance.SILENT if is_expected else None
        if self._completeness.scope.has_fleet and not is_known:
            return Attendance.UNREGISTERED
        is_whole = not any(day["numbering"] > day["awaiting"] or day["tap"] or day["nothing"] for day in days)
        # Those of the days beside the window count there; numbers that they leave unstated here count above.
        gaps = [manifest.report for manifest, _ in self._completeness.missing_manifests]
        wrong = self._completeness.unattesting
        is_sound = not any(report.within for report in (*gaps, *wrong)) and not self._has_open_end()
        return Attendance.ATTESTED if is_whole and is_sound and not self.is_overdue else Attendance.PARTLY

    def _has_open_end(self) -> bool:
        """Return whether a gap that no manifest states begins in the window and ends after it.

        Its numbers count in the hour after it, though some may belong to the window.
        """
        end_ms = self._completeness.scope.end_ms
        if end_ms is None:
            return False
        for epoch, seen in self._completeness.seen.items():
            for span, behind in self._completeness.unstated(epoch):
                before, _ = seen.hours_around(span)
                if before is not None and before * HOUR_MS < end_ms <= behind * HOUR_MS:
                    return True
        return False


def _at_ms(stated: ManifestReport | Birth) -> int:
    return stated.report.accepted_at_ms


@dataclass(frozen=True, slots=True)
class Coverage:
    """The attested share of what devices sent.

    `events` counts by `RESTS`. Of the numbered, `awaiting` are so young that the next manifest of their
    device need not be there yet. `best_effort` events were promised by nobody and are not among them.
    `devices` counts by `Attendance`, and those `expected`. `fleet` names the list of expected devices, None
    without one. `cloud_events` entered in the cloud and rest on the ledger alone. `home` counts events for
    inboxes on devices by `home.HOME`.
    """

    events: Mapping[str, int]
    awaiting: int
    best_effort: int
    devices: Mapping[str, int]
    fleet: str | None
    cloud_events: int
    home: Mapping[str, int]

    @property
    def share(self) -> float | None:
        """The share that manifests attest, None where no device sent anything and none is expected."""
        total = sum(self.events.values())
        if total:
            return self.events["manifest"] / total
        return 0.0 if self.devices["expected"] else None

    @property
    def home_share(self) -> float | None:
        """The share of events for inboxes on devices of which manifests say how they ended; None of none."""
        stated = self.home["stated"]
        unknown = sum(self.home[name] for name in ("pending", "unattested", "unstated"))
        return (stated - unknown) / stated if stated else None


@dataclass(frozen=True, slots=True)
class LedgerHours:
    """The hours that other folders must have by the ledger.

    `from_devices` are the hours in which events of its rows came from devices, `to_webhooks` the hours of the
    folder of which rows put events into inboxes of webhooks.
    """

    from_devices: frozenset[Hour] = frozenset()
    to_webhooks: frozenset[Hour] = frozenset()


def with_altered(parts: Mapping[str, ArchivePart], altered: Iterable[str]) -> dict[str, ArchivePart]:
    """Return the parts, to which the listed rows that the objects `altered` (keys) may lack are `gone`."""
    keys = {place_of(key): key for key in altered}
    found = {}
    for folder, part in parts.items():
        known = {each.name for each in part.gone}
        listed = {keys.get(place_of(each.key)): each for each in part.entries}
        lacking = (
            Gone(key, hour, 0, each.rows, each.first_ms, each.last_ms, statement_of(each))
            for key, each in listed.items()
            if key and key not in known and (hour := hour_of(key))
        )
        found[folder] = replace(part, gone=(*part.gone, *lacking))
    return found


def damaged_hours(
    parts: Mapping[str, ArchivePart],
    seen: LedgerHours,
    unreadable: Iterable[tuple[str, Hour]] = (),
    removed: Iterable[str] = (),
) -> dict[str, frozenset[Hour]]:
    """Return by folder the hours that may lack records.

    An object is unreadable or was there before (`removed`, by key), lines cannot be read and name no event
    (`unreadable`), or the hour has no object although another folder proves that it had records. That by
    itself is no hole: records may lie in the hour behind. Of an object that a writer lists it is known which
    rows it had (`missing_rows`); of the tap each hour of theirs lacks records. A receipt that cannot be read,
    or a file that no attested receipt names, damages no hour of which there are lists.
    """
    found: dict[str, set[Hour]] = defaultdict(set)
    for folder, part in parts.items():
        told = _told_by_lists(part)
        found[folder] |= {hour for each in part.faults if (hour := each.hour) and _is_hole(each, told)}
    for folder, hour in unreadable:
        found[folder].add(hour)
    found[TAP] |= {Hour.at(each) for each in hours_of_gone(parts[TAP])}
    for key in {*removed} - {each.name for part in parts.values() for each in part.gone}:
        hour_of_key = hour_of(key)
        if hour_of_key is not None:
            found[key.partition("/")[0]].add(hour_of_key)
    found[TAP] |= seen.from_devices - parts[TAP].hours
    found[LEDGER] |= parts[TAP].hours - parts[LEDGER].hours
    found[HANDOVERS] |= seen.to_webhooks - parts[HANDOVERS].hours
    return {folder: frozenset(hours) for folder, hours in found.items()}


def _told_by_lists(part: ArchivePart) -> frozenset[Hour]:
    """Return the hours of which lists say what is missing, and no attested receipt what is there."""
    listed = {hour_of(each.key) for each in part.entries}
    named = (name for receipt in part.receipts for name in (*receipt.inputs, *receipt.files))
    return frozenset(hour for hour in listed - {*map(hour_of, named)} if hour)


def _is_hole(fault: ObjectFault, told: Collection[Hour]) -> bool:
    """Return whether records may be missing that no list names; of the hours `told`, lists name all."""
    is_raw = fault.name.startswith(f"{fault.folder}/")
    return fault.kind == "unreadable" and (is_raw or fault.hour not in told)


def missing_rows(parts: Mapping[str, ArchivePart]) -> dict[str, list[MissingRows]]:
    """Return by folder the rows of objects that are gone, with the seconds in which they may have been."""
    found: dict[str, list[MissingRows]] = {}
    for folder, part in parts.items():
        merged = found.setdefault(folder, [])
        oldest = _oldest(part)
        times = ((_times_of(each, oldest), each) for each in part.gone if each.rows > 0)
        for (first_ms, last_ms), each in sorted(times, key=itemgetter(0)):
            if first_ms > last_ms:
                continue
            now = MissingRows(first_ms // 1_000, last_ms // 1_000, each.rows, each.hour.number)
            if merged and now.first_s <= (last := merged[-1]).last_s:
                both = max(last.last_s, now.last_s), last.rows + now.rows
                merged[-1] = last._replace(last_s=both[0], rows=both[1])
            else:
                merged.append(now)
    return found


def _times_of(gone: Gone, oldest: int) -> tuple[int, int]:
    """Return the first and last time that its rows may have, Unix milliseconds; first > last: there is none.

    The times of an entry are not attested: they count as far as its folder allows, since a row lies there at
    most `LATE_DAYS` late. What a gap in a list lacks may have lain in any folder before, from the `oldest`
    hour on, counted from 1970.
    """
    folder = min(oldest, gone.hour.number) if gone.name.startswith(WRITTEN) else gone.hour.number
    first = max(gone.first_ms, HOUR_MS * (folder - 24 * (LATE_DAYS + 1)))
    return first, min(gone.last_ms, HOUR_MS * (gone.hour.number + 2) - 1)


def _oldest(part: ArchivePart) -> int:
    return min((each.number for each in part.hours), default=_NO_END)


def hours_of_gone(tap: ArchivePart) -> Counter[int]:
    """Return how many rows are gone at most, with listed objects of the tap, by hour (counted from 1970)."""
    rows, oldest = Counter[int](), _oldest(tap)
    for each in tap.gone:
        first_ms, last_ms = _times_of(each, oldest)
        rows.update(dict.fromkeys(range(first_ms // HOUR_MS, last_ms // HOUR_MS + 1), each.rows))
    return +rows


def absent_hours(tap: ArchivePart) -> frozenset[int]:
    """Return the hours, counted from 1970, between the first and the last of the tap that have no object."""
    numbers = {each.number for each in tap.hours}
    return frozenset(range(min(numbers), max(numbers))) - numbers if numbers else frozenset()


def hole_findings(
    parts: Mapping[str, ArchivePart],
    faults: Iterable[ObjectFault],
    counts: Mapping[HoleCount, int],
    in_tap: Mapping[int, int],
) -> Iterator[Finding]:
    """Return a finding for each faulty object, and one for each other folder and hour that lacks records.

    `counts` are the judge's, `in_tap` counts by hour what devices and ledger prove that the tap had.
    """
    extents = Counter({(TAP, hour): count for hour, count in in_tap.items()})
    told = {folder: _told_by_lists(part) for folder, part in parts.items()}
    for key, count in counts.items():
        extents[key.archive, key.hour] += count
    # What is gone comes before the files that may have held it.
    for fault in sorted(faults, key=lambda each: each.kind != "gone"):
        read = "" if fault.rows is None else f"; {fault.rows} rows of it were read"
        is_hole = _is_hole(fault, told.get(fault.folder, ())) and not fault.name.startswith(f"{COMPACTIONS}/")
        if fault.hour is not None and (fault.kind == "gone" or is_hole):
            # The first such object of an hour has the hour's extent: how many each held nobody knows.
            lacking = extents.pop((fault.folder, fault.hour.number), 0)
            read += f"; {lacking} events of its hour are without a record" if lacking else ""
        yield Finding(
            date=f"{fault.hour.start:%Y-%m-%d}" if fault.hour else None,
            kind=str(Kind.MISSING_RECORDS) if fault.kind == "gone" else f"{fault.kind}_object",
            hop=str(Hop.ARCHIVE),
            archive_file=fault.name,
            at_ms=fault.hour.start_ms if fault.hour else None,
            detail=f"{fault.detail}{read}",
        )
    for (folder, number), count in sorted(extents.items()):
        if count:
            hour = Hour.at(number)
            span = f"{hour.start:%H}:00-{hour.start + timedelta(hours=1):%H}:00"
            there = "objects are missing" if hour in parts[folder].hours else "no object"
            yield Finding(
                date=f"{hour.start:%Y-%m-%d}",
                kind=str(Kind.MISSING_RECORDS),
                hop=str(Hop.ARCHIVE),
                archive_file=hour.raw(folder),
                at_ms=hour.start_ms,
                detail=f"{there} for {span}: {count} events without a record",
            )


def gone_hours(damaged: Mapping[str, frozenset[Hour]], tap: ArchivePart) -> frozenset[int]:
    """Return the hours, counted from 1970, in which the ledger has events of devices, the tap no object."""
    return frozenset(each.number for each in damaged.get(TAP, frozenset()) - tap.hours)
