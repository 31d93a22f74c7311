"""What a device says of itself, read from the tap: what it stored and gave up, and its store's births. Pure.

A report counts only for the device that sent it: a source that names another one is forged.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from eventplane.device_reports import DISCARDED, MANIFEST, STARTED, forwarder_source
from eventplane.whole_numbers import whole_number
from glue_jobs.delivery_audit.numbers import Range

SALVAGE_SHIFT: Final = 1 << 40
"""By how much a spool lowers the numbers of the events that it saved from a damaged one (docs/spool.md)."""

SENT_UNSTORED: Final = "sent_unstored"
"""The reason of an entry in `not_stored` that counts deliveries from memory: its refusal has another one."""


_MOST: Final = 2**62
"""Largest number of a report that is believed, of either sign: 64 bits hold it with `SALVAGE_SHIFT`."""


@dataclass(frozen=True, slots=True)
class Report:
    """One report's row in the tap; `epoch` and `sequence` are its own number, `text` the event."""

    within: bool
    date: str
    accepted_at_ms: int
    file: str
    type: str
    source: str
    id: str
    epoch: str | None
    sequence: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Statement:
    """A manifest's word: of `epoch` it stored `count` events for the uplink, numbered within `span`."""

    report: Report
    epoch: str
    span: Range
    count: int


@dataclass(frozen=True, slots=True)
class Birth:
    """A store's life called `epoch` began; `lost_epoch` is the one before, None without one."""

    report: Report
    epoch: str
    birth: str
    lost_epoch: str | None


@dataclass(frozen=True, slots=True)
class Discard:
    """The device gave up the numbers `span` of `epoch`."""

    report: Report
    epoch: str
    span: Range
    outcome: str
    reason: str


@dataclass(frozen=True, slots=True)
class NotStored:
    """`count` events that the device refused or gave up without a number."""

    report: Report
    channel: str
    type: str
    reason: str
    count: int


@dataclass(slots=True)
class Told:
    """All that a device told; `forged` has the reports that count for nothing, and why.

    `acknowledged_to` has by epoch the number up to which IoT Core had acknowledged, or the device given up,
    all that was stored for the uplink.
    """

    statements: list[Statement] = field(default_factory=list)
    acknowledged_to: dict[str, int] = field(default_factory=dict)
    births: list[Birth] = field(default_factory=list)
    discards: list[Discard] = field(default_factory=list)
    not_stored: list[NotStored] = field(default_factory=list)
    forged: list[tuple[Report, str]] = field(default_factory=list)


def told(client_id: str, reports: Iterable[Report], uplinks: Collection[str]) -> Told:
    """What the device `client_id` says in `reports` of the channels `uplinks`."""
    said = Told()
    # Births first: a report of what was given up may speak of the epoch before.
    for report in sorted(reports, key=lambda each: (each.type != STARTED, each.accepted_at_ms)):
        if report.source != forwarder_source(client_id):
            said.forged.append((report, "a report in the name of another device"))
            continue
        try:
            _BY_TYPE[report.type](said, report, json.loads(report.text)["data"], uplinks)
        except (ValueError, TypeError, KeyError, AttributeError):
            said.forged.append((report, "a report that cannot be read"))
    return said


def _manifest(said: Told, report: Report, data: dict[str, Any], uplinks: Collection[str]) -> None:
    epoch, sequence = str(data["epoch"]), report.sequence
    stated = [each for each in data["statements"] if each["destination"] in uplinks]
    found = [
        Statement(report, epoch, (_number(each["first"]), _number(each["last"])), _number(each["count"]))
        for each in stated
    ]
    # Older forwarders do not state it: nobody knows whether what they sent was acknowledged.
    acknowledged = [_number(each["acknowledged_to"]) for each in stated if "acknowledged_to" in each]
    if sequence is None:
        return
    said.statements += [each for each in found if each.count > 0 and each.span[1] >= each.span[0]]
    if acknowledged and len(acknowledged) == len(stated):
        # It says nothing of itself, nor of what came later.
        known = min(*acknowledged, sequence - 1)
        said.acknowledged_to[epoch] = max(known, said.acknowledged_to.get(epoch, known))


def _started(said: Told, report: Report, data: dict[str, Any], _: Collection[str]) -> None:
    said.births.append(Birth(report, str(data["epoch"]), str(data["birth"]), data.get("lost_epoch") or None))


def _discarded(said: Told, report: Report, data: dict[str, Any], uplinks: Collection[str]) -> None:
    found = [
        NotStored(report, each["channel"], each["type"], each["reason"], _number(each["count"]))
        for each in data.get("not_stored") or ()
    ]
    given_up = [
        discard
        for each in data.get("deliveries") or ()
        if each["destination"] in uplinks
        for discard in _discards(said, report, each)
    ]
    said.not_stored += [each for each in found if each.reason != SENT_UNSTORED and each.count > 0]
    said.discards += given_up


def _discards(said: Told, report: Report, ended: dict[str, Any]) -> Iterator[Discard]:
    """Ranges that the device gave up; negative numbers are those of events saved from the epoch before."""
    before = next((each.lost_epoch for each in said.births if each.epoch == report.epoch), None)
    for first, last in (map(_number, each) for each in ended["ranges"]):
        shift = SALVAGE_SHIFT if first < 0 else 0
        epoch = before if shift else report.epoch
        if epoch is not None and last >= first:
            span = (first + shift, last + shift)
            yield Discard(report, epoch, span, str(ended["outcome"]), str(ended["reason"]))


def _number(value: object) -> int:
    """A number that Spark can hold. Raises ValueError."""
    return whole_number(value, _MOST, -_MOST)


_BY_TYPE: Final = {MANIFEST: _manifest, STARTED: _started, DISCARDED: _discarded}
