"""Where the archive itself lacks records, which accuses no hop. No Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from eventplane.ledger import HANDOVERS, LEDGER, TAP
from glue_jobs.common.hours import Hour, hour_of
from glue_jobs.delivery_audit.event_group import HOUR_MS, HoleCount
from glue_jobs.delivery_audit.findings import Finding, Hop, Kind

if TYPE_CHECKING:
    from glue_jobs.common.archive import Part
    from glue_jobs.common.listing import ObjectFault

_KINDS: Final = {
    "unreadable": Kind.UNREADABLE_OBJECT,
    "misplaced": Kind.MISPLACED_OBJECT,
    "duplicate": Kind.DUPLICATE_OBJECT,
}

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_HOUR: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class LedgerHours:
    """What the ledger says that other folders must have.

    `from_devices` are the hours in which events of its rows came from devices, `to_webhooks` the hours of the
    folder of which rows put events into inboxes of webhooks.
    """

    from_devices: frozenset[Hour] = frozenset()
    to_webhooks: frozenset[Hour] = frozenset()


def damaged_hours(
    parts: Mapping[str, Part],
    seen: LedgerHours,
    unreadable: Iterable[tuple[str, Hour]] = (),
    removed: Iterable[str] = (),
) -> dict[str, frozenset[Hour]]:
    """Return by folder the hours that may lack records.

    An object is unreadable or was there before (`removed`, by key), lines cannot be read and name no event
    (`unreadable`), or the hour has no object although another folder proves that it had records. That by
    itself is no hole: records may lie in the hour behind.
    """
    found: dict[str, set[Hour]] = defaultdict(set)
    for folder, part in parts.items():
        for fault in part.faults:
            if fault.kind == "unreadable" and fault.hour is not None:
                found[folder].add(fault.hour)
    for folder, hour in unreadable:
        found[folder].add(hour)
    for key in removed:
        hour_of_key = hour_of(key)
        if hour_of_key is not None:
            found[key.partition("/")[0]].add(hour_of_key)
    found[TAP] |= seen.from_devices - parts[TAP].hours
    found[LEDGER] |= parts[TAP].hours - parts[LEDGER].hours
    found[HANDOVERS] |= seen.to_webhooks - parts[HANDOVERS].hours
    return {folder: frozenset(hours) for folder, hours in found.items()}


def absent_hours(tap: Part) -> frozenset[int]:
    """Return the hours, counted from 1970, between the first and the last of the tap that have no object."""
    numbers = {number_of(each) for each in tap.hours}
    return frozenset(range(min(numbers), max(numbers))) - numbers if numbers else frozenset()


def hole_findings(
    parts: Mapping[str, Part],
    faults: Iterable[ObjectFault],
    counts: Mapping[HoleCount, int],
    in_tap: Mapping[int, int],
) -> Iterator[Finding]:
    """Return a finding for each faulty object, and one for each other folder and hour that lacks records.

    `counts` are the judge's, `in_tap` counts by hour what devices and ledger prove that the tap had.
    """
    extents = {(key.archive, key.hour): count for key, count in counts.items()}
    extents |= {(TAP, hour): count for hour, count in in_tap.items()}
    for fault in faults:
        read = "" if fault.rows is None else f"; {fault.rows} rows of it were read"
        if fault.kind == "unreadable" and fault.hour is not None:
            # The first such object of an hour has the hour's extent: how many each held nobody knows.
            lacking = extents.pop((fault.folder, number_of(fault.hour)), 0)
            read += f"; {lacking} events of its hour are without a record" if lacking else ""
        yield Finding(
            date=f"{fault.hour.start:%Y-%m-%d}" if fault.hour else None,
            kind=str(_KINDS[fault.kind]),
            hop=str(Hop.ARCHIVE),
            archive_file=fault.name,
            at_ms=number_of(fault.hour) * HOUR_MS if fault.hour else None,
            detail=f"{fault.detail}{read}",
        )
    for (folder, number), count in sorted(extents.items()):
        if count:
            hour = hour_at(number)
            span = f"{hour.start:%H}:00-{hour.start + _HOUR:%H}:00"
            there = "objects are missing" if hour in parts[folder].hours else "no object"
            yield Finding(
                date=f"{hour.start:%Y-%m-%d}",
                kind=str(Kind.MISSING_RECORDS),
                hop=str(Hop.ARCHIVE),
                archive_file=hour.raw(folder),
                at_ms=number * HOUR_MS,
                detail=f"{there} for {span}: {count} events without a record",
            )


def gone_hours(damaged: Mapping[str, frozenset[Hour]], tap: Part) -> frozenset[int]:
    """Return the hours, counted from 1970, in which the ledger has events of devices, the tap no object."""
    return frozenset(number_of(each) for each in damaged.get(TAP, frozenset()) - tap.hours)


def hour_at(number: int) -> Hour:
    """Return the hour of a number counted from 1970."""
    return Hour(_EPOCH + number * _HOUR)


def number_of(hour: Hour) -> int:
    """Return an hour counted from 1970."""
    return (hour.start - _EPOCH) // _HOUR
