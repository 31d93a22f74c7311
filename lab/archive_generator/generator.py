"""The archive as a stream: hour by hour, device by device, so that its size costs time and no memory."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from enum import IntEnum
from itertools import cycle, islice
from pathlib import Path
from random import Random
from typing import Any, Final

from eventplane.contract import Contract, Priority
from eventplane.envelope import Envelope
from eventplane.ledger import HANDOVERS, LEDGER, TAP, to_line
from eventplane.reasons import Outcome
from glue_jobs.delivery_audit.contracts import INTERVAL_MS, STALE_AFTER
from glue_jobs.delivery_audit.findings import Hop, Kind
from lab.archive_generator.device import FRAME, HOUR_MS, NEWS_MS, REPORTS_MS, MadeDevice, pause_ms
from lab.archive_generator.faults import (
    FAULTS,
    altered_alike,
    altered_in_the_tap,
    fact,
    lost_on_the_way_up,
)
from lab.archive_generator.flows import Routing, SentFlow, flows
from lab.archive_generator.malformed import QUIET, WAYS, make_holes, malformed, refused_item
from lab.archive_generator.objects import Lines, MadeObjects, SentLine, event_of
from lab.archive_generator.records import Case, Passage, right_case
from lab.archive_generator.truth import COVERAGE, QUARANTINED, TRUTH, Truth, TruthTable

START_MS: Final = 1_772_323_200_000
"""2026-03-01, UTC midnight."""
OVERTAKEN_MS: Final = 3_500_000
"""When in an hour the overtaken is delivered, milliseconds: before the next hour's news."""
_IN_SERVICE_MS: Final = 30 * 24 * HOUR_MS
"""How long every device had been in service, milliseconds."""
FLEET: Final = "fleet"
"""The archive's folder of the devices that there should be."""
STALE_MS: Final = 2_700_000
"""How long a contract is in force until a decision by the one before is stale beyond doubt, and how much of
an hour has enough behind it to show that it was not withdrawn, milliseconds."""


class Trouble(IntEnum):
    """A trouble of a device."""

    NOTHING = 0
    CLOCK_AHEAD = 1
    CLOCK_BEHIND = 2
    NEW_EPOCH = 3
    LOST_MANIFEST = 4
    DISCARDS = 5
    ALTERED = 6
    NO_MANIFESTS = 7
    MANIFESTS_STOP = 8
    SILENT = 9
    UNREGISTERED = 10
    NEWER_MANIFEST = 11
    COUNTS_MORE = 12
    DEAF_HOME = 13


SKEWS_MS: Final = {Trouble.CLOCK_AHEAD: 2 * HOUR_MS, Trouble.CLOCK_BEHIND: -3 * HOUR_MS}
"""How far wrong clocks are."""
_CHANGES: Final[dict[Trouble, tuple[Kind, Callable[[Any], Any]]]] = {
    Trouble.NEWER_MANIFEST: (Kind.NOT_UNDERSTOOD, lambda data: {**data, "newer": True}),
    Trouble.COUNTS_MORE: (
        Kind.CONTRADICTION,
        lambda data: {**data, "statements": [{**each, "count": 10**6} for each in data["statements"]]},
    ),
}
"""What is found of a manifest with other data."""
_PARTLY: Final = (
    Trouble.LOST_MANIFEST,
    Trouble.ALTERED,
    Trouble.NO_MANIFESTS,
    Trouble.MANIFESTS_STOP,
    *_CHANGES,
)
_STANDING: Final = {
    **dict.fromkeys(_PARTLY, "partly"),
    Trouble.SILENT: "silent",
    Trouble.UNREGISTERED: "unregistered",
}
"""What coverage says of devices that do not attest all that they sent, or are not where they should be."""
_TROUBLES: Final = frozenset(Trouble)
_VANISHES: Final = 2
"""Which of five events of a device without manifests comes to nobody; never the last of an hour."""
_SURE_MS: Final = 54 * 60_000
"""When in an hour the last fault is planted, milliseconds: a later record could lie in the next hour,
which may have a hole."""
_ALTER: Final = (altered_alike, altered_in_the_tap)
"""What somebody does to the first events of an hour of a device whose events are altered."""
_AT_HOME: Final = (Kind.LOST, Kind.EXPIRED, Kind.LOST, None, Kind.LOST, Kind.DROPPED)
"""What becomes of events for services in a home whose readers take few; None: they are taken."""
_ONE_AN_HOUR: Final = frozenset({"lost_on_the_way_up", "lost_behind_iot_core", "by_another_client"})
"""Faults of which a device has one an hour: where a number is unseen, no digest proves what others sent."""
_ENDED: Final = {3: Outcome.EXPIRED, 7: Outcome.DROPPED, 9: Outcome.DEAD_LETTERED}
"""What a device that discards ends itself, by its place in the hour."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The size of the archive and its faults: one event in `fault_every`, and ten of each `trouble_every`
    devices; 0 is never. `rows` is how many an object holds at most. With `holes`, objects of the archive are
    damaged as well, in hours in which nothing else goes wrong. The faults called as one of `without` are not
    planted. Of the `ahead` faults that are next, the first that fits is planted.
    """

    events: int
    hours: int = 24
    events_an_hour: int = 50
    fault_every: int = 200
    trouble_every: int = 25
    rows: int = 20_000
    seed: int = 1
    holes: bool = False
    without: tuple[str, ...] = ()
    ahead: int = 2

    @property
    def devices(self) -> int:
        return max(1, round(self.events / (self.hours * self.events_an_hour)))

    @property
    def quiet(self) -> frozenset[int]:
        """The hours in which nothing but an object of the archive can go wrong."""
        return QUIET if self.holes else frozenset()


@dataclass(frozen=True, slots=True)
class _News:
    """What a device sends in one hour, by the flows that were `chosen`.

    Faults can be planted if the device `is_sound`. Some events it `discards` itself; where it `is_deaf` most
    events for services beside it are never taken, and where it `skips` them it stores none; with `vanishes`
    others are lost without a trace, and with `alters` others are altered in the archive. `neighbour` is
    another device that could bring one of its events.
    """

    device: MadeDevice
    hour_ms: int
    routing: Routing
    lines: dict[SentFlow, Lines]
    chosen: list[SentFlow]
    is_sound: bool
    discards: bool
    is_deaf: bool
    skips: bool
    vanishes: bool
    alters: bool
    neighbour: str | None


class Generator:
    """Writes the archive of `plan`, by the first of `contracts` until half time and then by the second."""

    def __init__(
        self, plan: Scale, contracts: Sequence[Contract], objects: MadeObjects, truth: TruthTable
    ) -> None:
        self._plan = plan
        self._random = Random(plan.seed)
        self._routings = [Routing(each) for each in contracts]
        self._objects = objects
        self._truth = truth
        self._flows = flows(contracts[0])
        urgent = {name for name, each in contracts[0].event_types.items() if each.priority is Priority.URGENT}
        self._weights = [1 if flow.type in urgent else 8 for flow in self._flows]
        self._lines = [{flow: Lines(flow, routing) for flow in self._flows} for routing in self._routings]
        self._faults = deque(each for each in FAULTS if each.name not in plan.without)
        self._extras = cycle([*WAYS, *WAYS, "refused", "vanished"])
        self._extra_is_due = False
        self._unproven: set[tuple[str, int]] = set()
        self._at_home = cycle(_AT_HOME)
        self.unseen = 0
        self._since_fault = self._numbers = self._frames = self.events = 0
        uplink, self._reporter = contracts[0].device.outbox.address, contracts[0].device.name
        local = {name for lines in self._lines[0].values() for name in lines.on_device}
        self._destinations = [uplink, *sorted(local - {uplink})]

    def run(self) -> None:
        """Write it all."""
        for routing in self._routings:
            self._objects.file_contract(routing.contract)
        devices = [self._device(number) for number in range(self._plan.devices)]
        for number, device in enumerate(devices):
            if self._trouble(number) is not Trouble.UNREGISTERED:
                since_ms = START_MS - _IN_SERVICE_MS
                entry = {"thing": device.client, "state": "provisioned", "since_ms": since_ms}
                self._objects.add(FLEET, START_MS, json.dumps(entry, separators=(",", ":")))
        for hour in range(self._plan.hours):
            hour_ms = START_MS + hour * HOUR_MS
            self._objects.close_before(hour_ms - HOUR_MS)
            for number, device in enumerate(devices):
                if self._trouble(number) is not Trouble.SILENT:
                    self._hour(device, number, hour, hour_ms)

    def _trouble(self, number: int) -> Trouble:
        every = self._plan.trouble_every
        return Trouble(number % every) if every and number % every in _TROUBLES else Trouble.NOTHING

    def _device(self, number: int) -> MadeDevice:
        client, skew_ms = _client(number), SKEWS_MS.get(self._trouble(number), 0)
        is_older = bool(number % 2) and self._trouble(number) is not Trouble.DEAF_HOME
        device = MadeDevice(
            client, self._reporter, self._destinations, self._random, skew_ms, is_older=is_older
        )
        if skew_ms:
            self._truth.add(Truth(Kind.CLOCK_SKEW, Hop.DEVICE_CLOUD, client, detail=str(skew_ms)))
        if standing := _STANDING.get(self._trouble(number)):
            self._truth.add(Truth(COVERAGE, None, client, detail=standing))
        return device

    def _hour(self, device: MadeDevice, number: int, hour: int, hour_ms: int) -> None:
        trouble = self._trouble(number)
        is_later = 2 * hour >= self._plan.hours
        is_middle = hour == self._plan.hours // 2
        routing = self._routings[is_later]
        if hour == 0:
            self._report(device.started(hour_ms), device, hour_ms, routing)
        elif trouble is Trouble.NEW_EPOCH and is_middle:
            change = self._report(device.started(hour_ms, device.epoch), device, hour_ms, routing)
            self._truth.add(fact(change, Kind.EPOCH_CHANGE, Hop.DEVICE_CLOUD))
        states_nothing = trouble is Trouble.NO_MANIFESTS or (trouble is Trouble.MANIFESTS_STOP and is_later)
        loses = trouble is Trouble.LOST_MANIFEST and is_middle
        alters = trouble is Trouble.ALTERED and is_middle
        kind, restated = _CHANGES.get(trouble, (None, None)) if is_middle else (None, None)
        discards = trouble is Trouble.DISCARDS and hour == (6 if self._plan.holes else 1)
        is_quiet = hour in self._plan.quiet
        hears_nothing = trouble is Trouble.DEAF_HOME and not is_quiet
        skips = hears_nothing and hour % 2 == 0
        weights = [max(each, 6) for each in self._weights] if hears_nothing else self._weights
        news = _News(
            device,
            hour_ms,
            routing,
            self._lines[is_later],
            chosen=self._random.choices(self._flows, weights, k=max(1, self._plan.events_an_hour - 1)),
            # An event that no manifest states cannot be missed; a digest does not cover unseen numbers.
            is_sound=not any(
                (device.skew_ms, discards, states_nothing, loses, alters, restated, is_quiet, skips)
            ),
            discards=discards,
            is_deaf=hears_nothing and not skips,
            skips=skips,
            vanishes=states_nothing and not is_quiet,
            alters=alters,
            neighbour=self._neighbour(number),
        )
        if ended := self._send(news):
            self._report(device.discarded(hour_ms + NEWS_MS, ended), device, hour_ms + NEWS_MS, routing)
        if states_nothing:
            return
        is_final = hour + 1 == self._plan.hours
        version = routing.contract.version
        manifest = device.manifest(hour_ms + REPORTS_MS, version, is_final=is_final, change=restated)
        loses &= not is_final
        case = self._report(manifest, device, hour_ms + REPORTS_MS, routing, written=not loses)
        if loses:
            self._truth.add(fact(case, Kind.MISSING_MANIFEST, Hop.DEVICE_CLOUD), *lost_on_the_way_up(case))
        if alters:
            self._truth.add(fact(case, Kind.MANIFEST_MISMATCH, Hop.DEVICE_CLOUD))
        if kind:
            self._truth.add(fact(case, kind, Hop.DEVICE_CLOUD))

    def _neighbour(self, number: int) -> str | None:
        """Another device, with which nothing is wrong."""
        other = number ^ 1
        return None if other >= self._plan.devices or self._trouble(other) else _client(other)

    def _send(self, news: _News) -> dict[tuple[str, Outcome], list[int]]:
        """Write an hour's events; returns the numbers of those that the device gave up, by destination."""
        device, hour_ms, routing, lines = news.device, news.hour_ms, news.routing, news.lines
        ended: dict[tuple[str, Outcome], list[int]] = {}
        kept: set[int] = set()
        earlier: dict[str, str] = {}
        frame_of = self._frames
        prefix = datetime.fromtimestamp((hour_ms + device.skew_ms) / 1_000, UTC).strftime("%Y-%m-%dT%H:")
        moments = device.moments(hour_ms, len(news.chosen))
        for place, (flow, (recorded_ms, accepted_ms, frame)) in enumerate(
            zip(news.chosen, moments, strict=True)
        ):
            past = recorded_ms - hour_ms
            recorded = f"{prefix}{past // 60_000:02d}:{past // 1_000 % 60:02d}.{past % 1_000:03d}Z"
            id = f"{self._random.getrandbits(128):032x}"
            number = device.next_number()
            self.events += 1
            self._since_fault += 1
            sent = SentLine(id, device.epoch, number, recorded, number * 7 % 997)
            text = lines[flow].text(sent, device.client)
            self._store(news, text, lines[flow].on_device, ended)
            passage = Passage.in_frame(
                device.client,
                accepted_ms,
                frame_of + frame,
                place % FRAME,
                states_acknowledged=not device.is_older,
            )
            if news.discards and place in _ENDED:
                outcome = _ENDED[place]
                ended.setdefault((self._destinations[0], outcome), []).append(number)
                self._truth.add(Truth(Kind(outcome), Hop.DEVICE_CLOUD, device.client, device.epoch, number))
                continue
            if news.vanishes and place % 5 == _VANISHES:
                self.unseen += 1
                continue
            if news.alters and place < len(_ALTER):
                case = self._case(flow, sent, passage, routing, None)
                self._truth.add(*_ALTER[place](case))
                self._write(case)
                continue
            is_sound = news.is_sound and accepted_ms - hour_ms < _SURE_MS
            if is_sound and place not in kept and self._is_due():
                overtaker = _overtaker(place, news)
                case = self._case(flow, sent, passage, routing, hour_ms + OVERTAKEN_MS if overtaker else None)
                case.earlier_id, case.neighbour = earlier.get(flow.type), news.neighbour
                if self._plant(case):
                    device.replace(text, case.event.json, lines[flow].on_device)
                    if overtaker:
                        kept.add(overtaker)
                    continue
            elif is_sound and self._extra_is_due:
                self._extra_is_due = False
                self._extra(self._case(flow, sent, passage, routing, None))
            earlier[flow.type] = id
            for row in lines[flow].fill(sent, passage):
                self._objects.add(*row)
        self._frames += -(-len(news.chosen) // FRAME)
        return ended

    def _store(
        self,
        news: _News,
        text: str,
        destinations: list[str],
        ended: dict[tuple[str, Outcome], list[int]],
    ) -> None:
        """Store an event, and note what becomes of it at services beside the device."""
        device, uplink = news.device, self._destinations[0]
        for inbox in [each for each in destinations if each != uplink] if news.is_deaf or news.skips else ():
            kind = Kind.LOST if news.skips else next(self._at_home)
            if kind is None:
                continue
            if kind is not Kind.LOST:
                ended.setdefault((inbox, Outcome(kind)), []).append(device.sequence)
            elif news.is_deaf:
                device.pending[inbox].append(device.sequence)
            where = device.client, device.epoch, device.sequence
            self._truth.add(Truth(kind, Hop.DEVICE_INBOX, *where, destination=inbox))
        device.store(text, [uplink] if news.skips and uplink in destinations else destinations)

    def _is_due(self) -> bool:
        return bool(self._plan.fault_every) and self._since_fault >= self._plan.fault_every

    def _plant(self, case: Case) -> bool:
        """Plant the next fault that fits into `case` and write it; False where none does."""
        # The first waits until it fits; meanwhile the next ones may go before it.
        hour = case.passage.client_id, case.passage.accepted_at_ms // HOUR_MS
        barred = _ONE_AN_HOUR if hour in self._unproven else ()
        following = (each for each in islice(self._faults, self._plan.ahead) if each.name not in barred)
        fault = next((each for each in following if each.fits(case)), None)
        if fault is None:
            return False
        if fault.name in _ONE_AN_HOUR:
            self._unproven.add(hour)
        self._faults.remove(fault)
        self._faults.append(fault)
        self._since_fault = 0
        # Not beside this event: a row that cannot be read would speak for it.
        self._extra_is_due = True
        facts = fault.plant(case)
        files = dict(self._write(case))
        self._truth.add(*(_in_file(each, files) for each in facts))
        return True

    def _extra(self, case: Case) -> None:
        """Beside an event what is none, or a row that cannot be read."""
        what = next(self._extras)
        if what in WAYS:
            self._numbers += 1
            folder, at_ms, line, mark = malformed(case, what, self._numbers)
            file = self._objects.add(folder, at_ms, line)
            self._truth.add(Truth(QUARANTINED, None, archive_file=file, detail=mark))
            # A line that can be read, or names its event before it is cut, may be a newer release's.
            if what == "text_for_number" or (what == "cut" and folder == LEDGER):
                hop = Hop.ARCHIVE if folder == TAP else Hop.ROUTER
                self._truth.add(fact(case, Kind.NOT_UNDERSTOOD, hop))
            elif what in ("missing_member", "impossible_time"):
                # Either way it is the time that it lacks.
                self._truth.add(fact(case, Kind.CONTRADICTION, Hop.ARCHIVE))
            return
        tap, decisions, truth = refused_item(case, recorded=what == "refused")
        for tapped in tap:
            self._objects.add(TAP, tapped.archived_at_ms, to_line(tapped))
        for decision in decisions:
            self._objects.add(LEDGER, decision.decided_at_ms, to_line(decision))
        self._truth.add(truth)

    def _case(
        self, flow: SentFlow, sent: SentLine, passage: Passage, routing: Routing, overtaken_at_ms: int | None
    ) -> Case:
        event = event_of(flow, passage.client_id, sent)
        return right_case(event, passage, routing, overtaken_at_ms, self._predecessor(passage))

    def _predecessor(self, passage: Passage) -> Routing | None:
        """Return what routers decided by before, where its successor has long been in force and stays so.

        None as well where devices send so rarely that no decisions around it show that.
        """
        second_ms = START_MS + (self._plan.hours + 1) // 2 * HOUR_MS
        is_sure = (
            passage.accepted_at_ms - second_ms > STALE_MS
            and passage.accepted_at_ms % HOUR_MS < STALE_MS
            and pause_ms(self._plan.events_an_hour - 1) <= STALE_AFTER * INTERVAL_MS
        )
        return self._routings[0] if is_sure and len(self._routings) > 1 else None

    def _report(
        self, report: Envelope, device: MadeDevice, at_ms: int, routing: Routing, *, written: bool = True
    ) -> Case:
        """A report's way, in a frame of its own; without rows if it is not `written`."""
        self.events += 1
        self._frames += 1
        passage = Passage.in_frame(
            device.client, at_ms + 500, self._frames - 1, 0, states_acknowledged=not device.is_older
        )
        case = right_case(report, passage, routing)
        if written:
            self._write(case)
        return case

    def _write(self, case: Case) -> list[tuple[str, str]]:
        """Write the rows of an event; returns the folder and the key of the object of each."""
        return [(row[0], self._objects.add(*row)) for row in case.rows()]


def _client(number: int) -> str:
    return f"home-{number:06d}"


def _in_file(truth: Truth, files: dict[str, str]) -> Truth:
    """A row that goes to the quarantine, with the object that it is in."""
    if truth.kind is not QUARANTINED:
        return truth
    folder = HANDOVERS if truth.route is None and truth.destination else LEDGER
    return replace(truth, archive_file=files[folder], detail=truth.id)


def _overtaker(place: int, news: _News) -> int | None:
    """The place of a later event of the same source, in a later frame, that is delivered in order as well."""
    flow, ordered = news.chosen[place], {each for each in news.chosen if news.lines[each].is_ordered}
    if flow not in ordered:
        return None
    rest = range((place // FRAME + 1) * FRAME, len(news.chosen))
    same = (each for each in rest if news.chosen[each].service == flow.service)
    return next((each for each in same if news.chosen[each] in ordered), None)


def generate(root: Path, plan: Scale, contracts: Sequence[Contract]) -> dict[str, object]:
    """Write the archive to `root`/archive and the truth beside it; returns what was written, counted."""
    small = frozenset(START_MS // HOUR_MS + hour for hour in plan.quiet)
    with TruthTable(root / TRUTH) as truth:
        with MadeObjects(root / "archive", plan.rows, small) as objects:
            generator = Generator(plan, contracts, objects, truth)
            generator.run()
        if plan.holes:
            facts, unseen = make_holes(root / "archive")
            truth.add(*facts)
            generator.unseen += unseen
    return {
        "plan": asdict(plan),
        "devices": plan.devices,
        "events": generator.events,
        "rows": objects.counts,
        "unseen": generator.unseen,
        "truth": dict(sorted(truth.counts.items())),
    }
