"""What a device reports of itself, read from the tap: what it stored and gave up, and its store's births.

A report counts only for the device that sent it: a source that names another one is forged. No Spark.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from eventplane.device_reports import DISCARDED, MANIFEST, SHA256, STARTED, forwarder_source
from eventplane.values import whole_number
from glue_jobs.delivery_audit.numbers import DIGESTS, Range

SALVAGE_SHIFT: Final = 1 << 40
"""By how much a spool lowers the numbers of the events that it saved from a damaged one (docs/spool.md)."""

SENT_UNSTORED: Final = "sent_unstored"
"""The reason of an entry in `not_stored` that counts deliveries from memory: its refusal has another one."""

USUAL_INTERVAL_S: Final = 3_600
"""When the next manifest of a forwarder that does not state its interval is due, seconds: the default of
`manifest_interval_s`."""

_LONGEST_INTERVAL_S: Final = 86_400
"""Largest `manifest_interval_s`, seconds."""

_MOST: Final = 2**62
"""Largest number of a report that is believed, of either sign: 64 bits hold it with `SALVAGE_SHIFT`."""


@dataclass(frozen=True, slots=True)
class Report:
    """One report's row in the tap; `epoch` and `sequence` are its own number, `text` the event.

    `client_id` is the connection that it came over, `within` whether it was accepted within the window.
    """

    client_id: str
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
    """What a manifest states for one uplink: `count` events with numbers within `span`.

    `digest` is the low half of the sum of their keys, None where an older forwarder does not state it.
    """

    span: Range
    count: int
    digest: int | None


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest about `epoch`, its `statements` of uplinks that stored something, in the order of numbers.

    All up to number `acknowledged_to` was acknowledged or given up (None: not stated). The next manifest is
    due after `interval_ms`, milliseconds, unless the forwarder stopped with this one (`is_final`).
    """

    report: Report
    sequence: int
    epoch: str
    statements: tuple[Statement, ...]
    acknowledged_to: int | None
    interval_ms: int
    is_final: bool

    @property
    def span(self) -> Range | None:
        """The numbers that it is about, None where nothing was stored."""
        if not self.statements:
            return None
        return self.statements[0].span[0], max(each.span[1] for each in self.statements)


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
class DeviceReports:
    """All that a device reports; `forged` has the reports that count for nothing, and why."""

    manifests: list[Manifest] = field(default_factory=list)
    births: list[Birth] = field(default_factory=list)
    discards: list[Discard] = field(default_factory=list)
    not_stored: list[NotStored] = field(default_factory=list)
    forged: list[tuple[Report, str]] = field(default_factory=list)


def read_reports(reports: Iterable[Report], uplinks: Collection[str]) -> DeviceReports:
    """Read what a device reports about the channels `uplinks`; copies count once."""
    read = DeviceReports()
    once: dict[tuple[str, str, str], Report] = {}
    for report in sorted(reports, key=lambda each: (each.accepted_at_ms, each.file)):
        once.setdefault((report.client_id, report.source, report.id), report)
    # Births first: a report of what was given up may be about the epoch before.
    for report in sorted(once.values(), key=lambda each: each.type != STARTED):
        if report.source != forwarder_source(report.client_id):
            read.forged.append((report, "a report in the name of another device"))
            continue
        try:
            _BY_TYPE[report.type](read, report, json.loads(report.text)["data"], uplinks)
        except (ValueError, TypeError, KeyError, AttributeError):
            read.forged.append((report, "a report that cannot be read"))
    return read


def _manifest(read: DeviceReports, report: Report, data: dict[str, Any], uplinks: Collection[str]) -> None:
    if report.sequence is None:
        raise ValueError("a manifest without a number")
    stated = [each for each in data["statements"] if each["destination"] in uplinks]
    is_comparable = data.get("key_digest") == SHA256
    found = sorted(
        (_statement(each, is_comparable=is_comparable) for each in stated), key=lambda each: each.span
    )
    # Older forwarders do not state it: nobody knows whether what they sent was acknowledged.
    acknowledged = [_number(each["acknowledged_to"]) for each in stated if "acknowledged_to" in each]
    read.manifests.append(
        Manifest(
            report,
            report.sequence,
            str(data["epoch"]),
            tuple(each for each in found if each.count > 0 and each.span[1] >= each.span[0]),
            # It reports nothing of itself, nor of what came later.
            min(*acknowledged, report.sequence - 1)
            if acknowledged and len(acknowledged) == len(stated)
            else None,
            1_000
            * min(whole_number(data.get("interval_s", USUAL_INTERVAL_S), _MOST, 1), _LONGEST_INTERVAL_S),
            data.get("final") is True,
        )
    )


def _statement(stated: dict[str, Any], *, is_comparable: bool) -> Statement:
    digest = int(str(stated["digest"]), 16) % DIGESTS if is_comparable else None
    return Statement((_number(stated["first"]), _number(stated["last"])), _number(stated["count"]), digest)


def _started(read: DeviceReports, report: Report, data: dict[str, Any], _: Collection[str]) -> None:
    read.births.append(Birth(report, str(data["epoch"]), str(data["birth"]), data.get("lost_epoch") or None))


def _discarded(read: DeviceReports, report: Report, data: dict[str, Any], uplinks: Collection[str]) -> None:
    found = [
        NotStored(report, each["channel"], each["type"], each["reason"], _number(each["count"]))
        for each in data.get("not_stored") or ()
    ]
    given_up = [
        discard
        for each in data.get("deliveries") or ()
        if each["destination"] in uplinks
        for discard in _discards(read, report, each)
    ]
    read.not_stored += [each for each in found if each.reason != SENT_UNSTORED and each.count > 0]
    read.discards += given_up


def _discards(read: DeviceReports, report: Report, ended: dict[str, Any]) -> Iterator[Discard]:
    """Return ranges that the device gave up; negative numbers are of events saved from the epoch before."""
    before = next((each.lost_epoch for each in read.births if each.epoch == report.epoch), None)
    for first, last in (map(_number, each) for each in ended["ranges"]):
        shift = SALVAGE_SHIFT if first < 0 else 0
        epoch = before if shift else report.epoch
        if epoch is not None and last >= first:
            span = (first + shift, last + shift)
            yield Discard(report, epoch, span, str(ended["outcome"]), str(ended["reason"]))


def _number(value: object) -> int:
    """Return a number that Spark can hold. Raises ValueError."""
    return whole_number(value, _MOST, -_MOST)


_BY_TYPE: Final = {MANIFEST: _manifest, STARTED: _started, DISCARDED: _discarded}
