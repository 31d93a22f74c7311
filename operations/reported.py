"""Read a device's own reports: its connection, its last heartbeat, and what it discarded.

The connection is in the table of presence, the reports are in the archive's tap; no queue is read. What a
device says is data: a value that is none of the kind is left out, as one that an older forwarder never
reported.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from eventplane.contract import Priority
from eventplane.device_reports import DISCARDED, HEARTBEAT, REPORT_PREFIX, thing_of
from eventplane.envelope import Envelope, parse_event
from eventplane.errors import EnvelopeError
from eventplane.ledger import TAP
from eventplane.presence import PRESENCE, PRESENCE_TABLE, PresenceItem
from eventplane.records import RecordError, Records
from eventplane.resource_names import resource_name
from eventplane.values import timestamp_ms
from operations import system
from operations.archive import Archive, Days, Record, json_object, say_damaged
from operations.cloud import Cloud, if_deployed
from operations.command import say

RECENT: Final = 12
"""Newest reports that the device's clock is judged by. Ours: an hour of heartbeats, so that a clock that was
set right is not judged by what it was before."""

NOT_STORED: Final = "not stored"
"""The `outcome` of what a device had no room for, or refused."""

_MOST: Final = 1e15
_MOST_CHARACTERS: Final = 200


class Loss(NamedTuple):
    """Events that a device ended without delivering them: `where` is the destination or channel."""

    outcome: str
    reason: str
    where: str


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """The reports of `thing` in the archive's hours from `since` to `until`, and its `presence`, None if
    unknown.

    `figures` are those of its newest heartbeat, accepted at `heartbeat_ms`; `lost` counts what its reports in
    these hours list. `clock_ahead_ms` is how far its clock is ahead of IoT Core's at least; negative: how far
    it is behind at most, as reports wait before they come. None: not reported.
    """

    thing: str
    since: datetime
    until: datetime
    presence: PresenceItem | None = None
    heartbeat_ms: int | None = None
    interval_s: float | None = None
    figures: Mapping[str, Any] = field(default_factory=dict)
    lost: Mapping[Loss, int] | None = None
    clock_ahead_ms: int | None = None

    def number(self, name: str) -> float | None:
        """Return a number of the heartbeat."""
        return _number(self.figures.get(name))

    def text(self, name: str) -> str | None:
        """Return a text of the heartbeat."""
        return _text(self.figures.get(name))

    @property
    def last_heard_ms(self) -> int | None:
        """When its last heartbeat came, as presence knows it, otherwise the archive."""
        beat = self.presence and self.presence.heartbeat
        return beat.at_ms if beat else self.heartbeat_ms

    def oldest_ms(self, priority: Priority) -> int | None:
        """Return since when the oldest event of a priority waited, Unix milliseconds; None if none did."""
        age_s = self.number(f"oldest_{priority}_s")
        return None if self.heartbeat_ms is None or not age_s else self.heartbeat_ms - round(1_000 * age_s)


def report_of(
    thing: str,
    presences: Records[PresenceItem] | None,
    archive: Archive | None,
    hours: int = 1,
    until: datetime | None = None,
) -> DeviceReport:
    """Return what `thing` reported, as presence (None: unknown) and the archive know it.

    Of the archive it reads `hours` up to the device's last heartbeat, or up to `until` (now) if none is
    known, and one more: a report is written after it came. Raises what boto3 raises.
    """
    presence = None if presences is None else _presence(thing, presences)
    until = until or system.now()
    if presence and presence.heartbeat:
        heard = datetime.fromtimestamp(presence.heartbeat.at_ms / 1_000, UTC)
        until = min(heard + timedelta(hours=1), until)
    since = until - timedelta(hours=hours + 1)
    report = DeviceReport(thing, since, until, presence)
    if archive is None:
        return report
    days = Days(archive, since.date(), until.date(), (since, until))
    reports = _reports(days.records(TAP, lambda line: _own(line, thing)), thing)
    say_damaged(days)
    return _with_reports(report, reports)


def _presence(thing: str, presences: Records[PresenceItem]) -> PresenceItem | None:
    try:
        with if_deployed():
            return presences.read(thing)
    except RecordError as error:
        say(str(error))
    return None


def _with_reports(report: DeviceReport, reports: Sequence[tuple[int, Envelope]]) -> DeviceReport:
    """Return `report` with what is in `reports`, each with the time of its acceptance, in this order."""
    ahead = [
        timestamp_ms(str(event.attributes["time"])) - accepted_ms
        for accepted_ms, event in reports[-RECENT:]
        if "time" in event.attributes
    ]
    beats = [each for each in reports if each[1].type == HEARTBEAT]
    at_ms, beat = beats[-1] if beats else (None, None)
    said = _members(beat.data()) if beat else {}
    lost: Counter[Loss] = Counter()
    for _, event in reports:
        if event.type == DISCARDED:
            lost.update(losses(event))
    return replace(
        report,
        heartbeat_ms=at_ms,
        interval_s=_number(said.get("interval_s")),
        figures=_members(said.get("figures")),
        lost=lost if reports else None,
        clock_ahead_ms=max(ahead, default=None),
    )


def _own(line: bytes, thing: str) -> Record | None:
    # Most lines are about others, and need not be parsed.
    if REPORT_PREFIX.encode() not in line or json.dumps(thing).encode() not in line:
        return None
    record = json_object(line)
    return record if record and record["client_id"] == thing and record["event"] is not None else None


def _reports(records: Iterable[Record], thing: str) -> list[tuple[int, Envelope]]:
    """Return the forwarder's own reports in the order of acceptance; its services cannot speak for it."""
    found: dict[str, tuple[int, Envelope]] = {}
    for each in records:
        try:
            event = parse_event(each["event"])
        except EnvelopeError:
            continue
        # What was accepted or archived twice counts once.
        if event.type.startswith(REPORT_PREFIX) and thing_of(event.source) == thing:
            found.setdefault(event.id, (each["accepted_at_ms"], event))
    return sorted(found.values(), key=lambda each: each[0])


def losses(report: Envelope) -> dict[Loss, int]:
    """Return what a device's report of discarded events counts; members of another form are left out."""
    data, found = _members(report.data()), Counter[Loss]()
    for outcome, name, where in (
        (None, "deliveries", "destination"),
        (NOT_STORED, "not_stored", "channel"),
    ):
        rows = data.get(name)
        for each in map(_members, rows if isinstance(rows, list) else ()):
            words = outcome or _text(each.get("outcome")), _text(each.get("reason")), _text(each.get(where))
            count = _number(each.get("count"))
            if None not in words and count:
                found[Loss(*map(str, words))] += int(count)
    return found


def _members(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and 0 <= value <= _MOST else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value and len(value) <= _MOST_CHARACTERS else None


def presence_of(cloud: Cloud, environment: str) -> Records[PresenceItem]:
    """Return what presence knows of the environment's devices."""
    return Records(cloud.tables, resource_name(environment, PRESENCE_TABLE), PRESENCE)
