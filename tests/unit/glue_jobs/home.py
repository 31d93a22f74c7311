"""A device's rows as Spark gathers them, made of the reports that its forwarder writes."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, NamedTuple

from edge import reports
from edge.counts import NotStored
from edge.reports import Heading
from edge.spool import LossReport, Manifest, SpoolOrigin
from eventplane.device_reports import (
    MANIFEST,
    SHA256,
    SHA256_EVENT,
    STATED_PENDING,
    event_digest,
    forwarder_source,
    key_digest,
    short_digest,
)
from eventplane.envelope import Envelope
from eventplane.reasons import Outcome
from eventplane.receipts import SPOOL_FULL
from eventplane.report_reader import RULES
from glue_jobs.delivery_audit.audit import FOUND
from glue_jobs.delivery_audit.claims import HourRow, owners_of
from glue_jobs.delivery_audit.completeness import Scope
from glue_jobs.delivery_audit.device import DeviceJudgement, DeviceRows, judge_device
from glue_jobs.delivery_audit.devices import Listed
from glue_jobs.delivery_audit.event_group import HOUR_MS, NotInTap
from glue_jobs.delivery_audit.home import Due
from glue_jobs.delivery_audit.number_ranges import pack_events
from glue_jobs.delivery_audit.plain_rows import SentRow
from glue_jobs.delivery_audit.small import PlainDevices

UPLINK = "device.outbox"
SIREN = "siren.inbox"
NOON_MS = 1_772_366_400_000
"""2026-03-01T12:00:00Z"""
DAY_END_MS = NOON_MS + 12 * HOUR_MS
DIGESTS = 1 << 128


class Event(NamedTuple):
    """An event in the tap; `report` is a report's row as a device's judgement takes it."""

    client_id: str
    epoch: str | None
    at_ms: int
    number: int | None
    key: tuple[str, str, str]
    report: tuple[Any, ...] | None = None
    data: bytes = b""
    due: str = ""

    @property
    def text(self) -> bytes:
        """Stands for the text of an event that is no report."""
        return self.report[7].encode() if self.report else "\n".join(self.key).encode() + self.data

    def digest(self, rule: str = SHA256_EVENT) -> bytes:
        return key_digest(self.key) if rule == SHA256 else event_digest(self.text)

    @property
    def low_halves(self) -> tuple[int, int]:
        by_key, by_event = (int.from_bytes(self.digest(rule)[8:], "big", signed=True) for rule in RULES)
        return by_key, by_event


def _value(text: str) -> Any:
    words = {"True": True, "False": False}
    return words[text] if text in words else int(text) if text.isdigit() else text


class Home:
    """The device `client_id`: it numbers what it stores; `tap` is whether the tap has it."""

    def __init__(self, client_id: str = "home-1", epoch: str = "e1") -> None:
        self.client_id = client_id
        self.epoch = epoch
        self.number = 0
        self.at_ms = NOON_MS
        self.events: list[Event] = []
        self.not_in_tap: list[NotInTap] = []
        self._stored: list[Event] = []
        self._at_home: list[int] = []
        self.waiting: list[int] = []
        self._manifests = 0

    def live(self, story: str) -> Home:
        """Do one thing after the other: `send 3, lose 1, keep 2, manifest count=4, wait 1`.

        What it loses never comes to the tap, what it keeps has no route to the cloud. It moves to another
        client id with its store.
        """
        for step in story.split(", "):
            word, *rest = step.split(" ")
            number = int(rest.pop(0)) if rest and "=" not in rest[0] and word != "wait" else 1
            more = {name: _value(text) for name, _, text in (each.partition("=") for each in rest)}
            if word == "move":
                self.client_id = f"{self.client_id}-b"
            elif word == "wait":
                self.wait(float(rest[0]))
            elif word == "expire":
                self.discarded(Outcome.EXPIRED, (number, number), **more)
            elif word == "take":
                self.waiting.remove(number)
            elif word == "manifest":
                self.manifest(**more)
            elif word == "simple":
                self.simple(number)
            elif word == "start":
                self.started(**more)
            else:
                self.send(number, **{"tap": word == "send", "uplink": word != "keep", **more})
        return self

    def send(
        self,
        count: int = 1,
        *,
        tap: bool = True,
        ledger: bool = False,
        uplink: bool = True,
        under: str | None = None,
        altered: bool = False,
        readable: bool = True,
        home: str = "",
        due: str = "",
    ) -> None:
        """Store events; the ledger has those that only it has.

        Of `altered` ones the tap has other data. The number of some is not `readable`. In the `home` the
        siren has `taken` them or they `wait`; they are `due` there by the contract of that version.
        """
        for _ in range(count):
            self.number += 1
            key = "voice", f"//{self.client_id}", f"{self.epoch}-{self.number}"
            event = self._event(key)._replace(due=f"{due} {SIREN}" if due else "")
            self._at_home += [self.number] if home else []
            self.waiting += [self.number] if home == "waits" else []
            if uplink:
                self._stored.append(event)
            if tap:
                came = event._replace(client_id=under or self.client_id, data=b"altered" if altered else b"")
                self.events.append(came if readable else came._replace(number=None))
            if ledger:
                self.in_ledger(key)

    def in_ledger(
        self, key: tuple[str, str, str], type: str = "org.example.door.v1", text: bytes | None = None
    ) -> None:
        """Record an event of this device in the ledger that the tap does not have."""
        service, source, id = key
        named = self.client_id, f"{self.client_id}/{service}", source, id, type
        digest = short_digest(text or "\n".join(key).encode())
        self.not_in_tap.append(NotInTap(*named, "doors", "doors.inbox", "v1", self.at_ms, "l", digest))

    def manifest(
        self,
        *,
        tap: bool = True,
        ledger: bool = False,
        final: bool = False,
        older: bool = False,
        rule: str = SHA256_EVENT,
        acknowledged_to: int | None = None,
        epoch: str | None = None,
        thing: str | None = None,
        along: int = 0,
        lists: bool = True,
        contract: str = "v1",
        **changed: Any,
    ) -> None:
        """State what was stored since the last one; `epoch`, `thing` and `changed` members lie.

        `along` so many events are stored with it, before it, which the next one states. It `lists` what
        waits in the home, unless its forwarder is an older one, and decides by a `contract`.
        """
        numbers = [each.number or 0 for each in self._stored]
        first, last = (numbers[0], numbers[-1]) if numbers else (self.number + 1, self.number)
        digest = sum(int.from_bytes(each.digest(rule), "big") for each in self._stored) % DIGESTS
        stated = {"first": first, "last": last, "count": len(numbers), "digest": digest, **changed}
        self._stored.clear()
        home = self._at_home or [self.number + 1, self.number]
        siren = Manifest(SIREN, home[0], home[-1], len(self._at_home), 0)
        self._at_home = []
        to = {SIREN: min(self.waiting, default=self.number + 1) - 1}
        self.send(along)
        heading = self._heading()
        heading = Heading(thing or heading.thing, epoch or heading.epoch, heading.number, heading.time)
        to |= {UPLINK: acknowledged_to} if acknowledged_to is not None else {}
        pending = {SIREN: self.waiting[: STATED_PENDING // 2]} if lists else {}
        statements = [Manifest(UPLINK, **stated), siren]
        report = reports.manifest(
            heading, statements, to, 3_600, pending=pending, contract=contract, is_final=final
        )
        data = report.data() | {"key_digest": rule}
        if older:
            data = {name: data[name] for name in ("epoch", "statements")}
        report = heading.write(MANIFEST, data)
        self._report(report, tap=tap, ledger=ledger)

    def alter(self, change: Callable[[Any], Any]) -> Home:
        """Let the device have stored the last report with other data, under the same identity."""
        *place, text = self.events[-1].report or ()
        event = json.loads(text)
        altered = json.dumps({**event, "data": change(event["data"])})
        self._stored[-1] = self.events[-1] = self.events[-1]._replace(report=(*place, altered))
        return self

    def started(self, birth: str = "created", lost_epoch: str = "") -> None:
        kind: Any = birth
        self._report(reports.started(self._heading(), SpoolOrigin(kind, lost_epoch=lost_epoch)))

    def discarded(self, outcome: Outcome, *ranges: tuple[int, int], of: str = UPLINK) -> None:
        tally = LossReport(of, outcome, "because", 1, ranges)
        self._report(reports.discarded(self._heading(), [tally], {}))

    def refused(self, channel: str, count: int) -> None:
        """Report events that the full store did not take."""
        entry = {NotStored(channel, "org.example.alarm.v1", SPOOL_FULL): count}
        self._report(reports.discarded(self._heading(), [], entry))

    def simple(self, count: int = 1) -> None:
        """Send events without numbers."""
        for _ in range(count):
            key = "simple", f"//{self.client_id}", f"s{len(self.events)}"
            self.events.append(Event(self.client_id, None, self.at_ms, None, key))

    def wait(self, hours: float) -> None:
        self.at_ms += int(hours * HOUR_MS)

    def begin(self, epoch: str) -> None:
        self.epoch, self.number = epoch, 0
        self._stored.clear()
        self._at_home, self.waiting = [], []

    def gathered(self, state: str | None = None, since_ms: int = 0, day_only: bool = False) -> DeviceRows:
        hours: dict[tuple[str, str | None, int], list[Event]] = defaultdict(list)
        for event in self.events:
            hours[event.client_id, event.epoch, event.at_ms // HOUR_MS].append(event)
        found = [
            HourRow(
                client_id,
                epoch,
                hour,
                not day_only or NOON_MS - 12 * HOUR_MS <= hour * HOUR_MS < DAY_END_MS,
                pack_events((each.number, *each.low_halves) for each in events if each.number is not None),
                pack_events((each.low_halves[0], 0, 0) for each in events if each.number is None),
                0,
                [(each.epoch, *each.low_halves) for each in events if each.number is None and each.epoch],
                min((each.at_ms, "tap/1") for each in events),
                None,
                0,
                [each.report for each in events if each.report is not None],
                [
                    Due("", each.number, each.due, accepted_at_ms=each.at_ms)[1:-1]
                    for each in events
                    if each.due and each.number is not None
                ],
            )
            for (client_id, epoch, hour), events in hours.items()
        ]
        return DeviceRows(self.client_id, found, self.not_in_tap, (), state, since_ms)

    def judged(self, scope: Scope | None = None, **registered: Any) -> DeviceJudgement:
        return judge_device(self.gathered(**registered), scope or SCOPE)

    def _heading(self) -> Heading:
        self._manifests += 1
        return Heading(self.client_id, self.epoch, self._manifests, "2026-03-01T12:00:00Z")

    def _report(self, report: Envelope, *, tap: bool = True, ledger: bool = False) -> None:
        self.number += 1
        named = self.at_ms, "tap/1", report.type, report.source, report.id, self.epoch, self.number
        event = self._event(("device", report.source, report.id), (*named, report.json))
        self._stored.append(event)
        if tap:
            self.events.append(event)
        if ledger:
            self.in_ledger(event.key, report.type, event.text)

    def _event(self, key: tuple[str, str, str], report: tuple[Any, ...] | None = None) -> Event:
        return Event(self.client_id, self.epoch, self.at_ms, self.number, key, report)


def devices_of(
    homes: Collection[Home], strays: Collection[NotInTap], registry: Listed | None = None
) -> PlainDevices:
    """Bring together what some homes sent, and what the ledger alone has."""
    hours = [hour for home in homes for hour in home.gathered().hours]
    sent = [
        SentRow(each, each.first[0], any(row[3] == forwarder_source(each.client_id) for row in each.reports))
        for each in hours
    ]
    return PlainDevices(sent, {**dict.fromkeys(FOUND, ()), "not_in_tap": [*strays]}, {}, registry)


def judged_together(
    *homes: Home, scope: Scope | None = None, absent: Collection[int] = ()
) -> dict[str, DeviceJudgement]:
    """Judge each client id of some homes, with the rows of others that it needs."""
    devices = devices_of(homes, [each for home in homes for each in home.not_in_tap])
    owners = owners_of(devices.senders())
    scope = replace(scope or SCOPE, owners=owners)
    return {each.client_id: judge_device(each, scope, absent) for each in devices.gathered(owners)}


SCOPE = Scope(frozenset({UPLINK}), DAY_END_MS + 24 * HOUR_MS, end_ms=DAY_END_MS)
"""The audit of the day, a day later."""


def steps(judge: Callable[[], object]) -> int:
    """Return how many lines and calls of Python a judgement takes."""
    count = 0

    def trace(*_: Any) -> Any:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        judge()
    finally:
        sys.settrace(before)
    return count
