"""One home for some days: its services, the real forwarder and spool, and what became of each event."""

from __future__ import annotations

import logging
import tempfile
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, pairwise
from math import inf, nan
from pathlib import Path
from typing import Any, Final

from contract.rehearsal import Judge, Tapped
from edge.spool import Delivery, Discard, StoredEvent
from eventplane.contract import Contract, ParticipantKind, Place, Priority
from eventplane.dead_letter import DEAD_LETTER_TYPE, Refusal, reason_in
from eventplane.envelope import Envelope, parse_event
from eventplane.ingest import IngestFrame
from eventplane.reasons import Outcome
from eventplane.topics import urgent_rule
from eventplane_aws.prices import IOT_BYTES, chunks
from eventplane_aws.rules import IOT_UNACKNOWLEDGED
from parts.simulate.broker import BrokerMessage, BrokerModel, Limits
from parts.simulate.home import RESTART_S, RULE, SCRATCH, HomeModel
from parts.simulate.line import CLOUD_DELAY_S
from parts.simulate.timeline import START_S, Timeline, draws
from parts.simulate.traffic import DAY_H, HOUR_S, TrafficFlow
from parts.simulate.weather import MINUTE_S, Weather, Window

BUCKETS: Final = 336
"""Points of a curve over all days."""


@dataclass(frozen=True, slots=True)
class Simulation:
    """A simulation of `contract` under `traffic` and `weather` for `days`.

    `settings` are those of the homes' forwarders that are no defaults.
    """

    contract: Contract
    traffic: tuple[TrafficFlow, ...]
    weather: Weather
    days: float
    seed: int
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ends_s(self) -> float:
        """When it ends, seconds."""
        return self.days * DAY_H * HOUR_S

    @property
    def bucket_s(self) -> float:
        """The time between two points of a curve, seconds."""
        return self.ends_s / BUCKETS

    def expected(self, thing: str) -> float:
        """Return how many events of a home are to be expected."""
        events = self.days * sum(each.per_day for each in self.traffic)
        for flood, windows in self.weather.of("flood", self.seed, thing, self.ends_s):
            lasts_s = sum(min(until_s, self.ends_s) - begins_s for begins_s, until_s in windows)
            events += lasts_s / MINUTE_S * flood.events_per_minute
        return events


@dataclass(frozen=True, slots=True)
class Decided:
    """The decision of the cloud's routers: `inboxes` with the lifetime by channels, or why it is `refused`.

    Milliseconds, None for ever. `outbox` is the channel that they were said over, `is_at_home` whether routes
    of the device lead them to an inbox as well.
    """

    type: str
    outbox: str
    priority: Priority
    inboxes: tuple[tuple[str, int | None], ...] = ()
    refused: str | None = None
    is_at_home: bool = False


@dataclass
class BacklogCurve:
    """The events and bytes of an outbox that wait on a device for the cloud: the most in each bucket."""

    events: array[float] = field(default_factory=lambda: array("d", bytes(8 * BUCKETS)))
    bytes: array[float] = field(default_factory=lambda: array("d", bytes(8 * BUCKETS)))


@dataclass
class HomeRecord:
    """The ends of the events of a home, moments in seconds.

    Of what IoT Core accepted `said`, `stored`, `accepted`, `ends` (when it expires), `decided` (an index into
    `decisions`) and `numbers` are columns in the order of acceptance.
    """

    thing: str
    decisions: list[Decided] = field(default_factory=list)
    said: array[float] = field(default_factory=lambda: array("d"))
    stored: array[float] = field(default_factory=lambda: array("d"))
    accepted: array[float] = field(default_factory=lambda: array("d"))
    ends: array[float] = field(default_factory=lambda: array("d"))
    decided: array[int] = field(default_factory=lambda: array("I"))
    numbers: array[int] = field(default_factory=lambda: array("I"))
    sent: Counter[str] = field(default_factory=Counter)
    """Said by services, by outbox."""
    unsaid: int = 0
    """What would have been said, had there been power."""
    taken: Counter[str] = field(default_factory=Counter)
    """Stored by the forwarder, by outbox."""
    ended: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)
    """Deliveries that ended on the device, by outbox, destination, outcome and reason."""
    waiting: Counter[str] = field(default_factory=Counter)
    """Events that wait on the device for the cloud in the end, by outbox."""
    at_sender: Counter[str] = field(default_factory=Counter)
    """What a service, or the home's broker, still has in the end for the forwarder, by outbox."""
    lost: Counter[str] = field(default_factory=Counter)
    """What its sender gave up and the forwarder never had, by outbox."""
    letters: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Dead letters that the forwarder wrote, by channel and reason."""
    due: Counter[str] = field(default_factory=Counter)
    alarms_due: Counter[str] = field(default_factory=Counter)
    """Deliveries that were stored for inboxes of the home, and those of alarms."""
    alarms_said: int = 0
    alarms_lost: int = 0
    """Alarms that the home said, and deliveries of them that ended in it without being made."""
    latencies: dict[str, array[float]] = field(default_factory=dict)
    alarm_latencies: dict[str, array[float]] = field(default_factory=dict)
    """Seconds from saying to handling, by inbox of the home, and those of alarms."""
    curves: dict[str, BacklogCurve] = field(default_factory=dict)
    used: array[float] = field(default_factory=lambda: array("d"))
    """The spool's bytes at each point of a curve; nan while no forwarder runs."""
    units: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """What is billed for a device, by name in the list of prices; its `urgent` and `ordinary` publishes."""
    copies: int = 0
    frames: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Publishes by outbox, those with events of several in shares."""
    weather: dict[str, list[Window]] = field(default_factory=dict)
    """When what happened to this home."""


class SimulatedHome(HomeModel):
    """A home that takes down what becomes of each event."""

    def __init__(self, line: Timeline, plan: Simulation, thing: str, folder: Path) -> None:
        self.plan = plan
        self.record = record = HomeRecord(thing)
        contract = plan.contract
        self._judge = Judge(contract, self._payload_refusal)
        self._decisions: dict[Decided, int] = {}
        self._uplink = contract.device.outbox
        self._said: dict[tuple[str, str], tuple[float, bool]] = {}
        """When each event was said, and whether it is an alarm."""
        self._stored: dict[tuple[str, str], float] = {}
        self._outboxes: dict[tuple[str, int], tuple[str, int]] = {}
        self._taken: set[tuple[str, str]] = set()
        self._checked = {each.type for each in plan.traffic if each.data is not None}
        self._payloads: dict[str, Refusal | None] = {}
        """Why payloads are refused: those of a type are all the same."""
        self._is_off = False
        self._random = draws(plan.seed, thing, "machine")
        cloud = BrokerModel(line, Limits(IOT_UNACKNOWLEDGED.most, 1 << 30), self._accepted, self._client)
        trusting = {
            each.name
            for each in contract.participants.values()
            if each.kind is ParticipantKind.DEVICE_SERVICE and not each.outbox.receipts
        }
        self._connected_s: float | None = None
        settings = plan.settings
        super().__init__(line, thing, contract, cloud, folder, self._random.randbytes, trusting, settings)
        for kind in ("offline", "silent", "no_power", "crash", "disk_full"):
            record.weather[kind] = plan.weather.when(kind, plan.seed, thing, plan.ends_s)
        record.weather["region_down"] = plan.weather.when("region_down", plan.seed, "cloud", plan.ends_s)
        self._follow_weather(record.weather)
        self._follow_traffic()
        line.every(plan.bucket_s, self._sample, first_s=plan.bucket_s)

    # What services say.

    def _follow_traffic(self) -> None:
        for flow in self.plan.traffic:
            random = draws(self.plan.seed, self.thing, "traffic", flow.type, flow.sender)
            self._next(flow, flow.moments(random, self.plan.ends_s))
        for happens, windows in self.plan.weather.of("flood", self.plan.seed, self.thing, self.plan.ends_s):
            if (flood := self._flooding(happens.type)) is None or not happens.events_per_minute:
                continue
            self.record.weather.setdefault("flood", []).extend(windows)
            step_s = MINUTE_S / happens.events_per_minute
            for begins_s, until_s in windows:
                self._next(flood, _steps(begins_s, min(until_s, self.plan.ends_s), step_s))

    def _flooding(self, type: str) -> TrafficFlow | None:
        flows = [each for each in self.plan.traffic if type in ("", each.type)]
        return max(flows, key=lambda each: each.per_day, default=None)

    def _next(self, flow: TrafficFlow, moments: Iterator[float]) -> None:
        """Say an event at each of `moments`; one is in the timeline at a time."""

        def say() -> None:
            self._say(flow)
            self._next(flow, moments)

        if (at_s := next(moments, None)) is not None:
            self.engine.at(at_s, say)

    def _is_alarm(self, event: Envelope, flow: TrafficFlow) -> bool:
        """Return whether an event of a service is urgent: here that is an alarm."""
        outbox = self.contract.participants[flow.sender].outbox
        is_alarm = self.contract.priority(event, outbox) is Priority.URGENT
        self.record.alarms_said += is_alarm
        return is_alarm

    def _say(self, flow: TrafficFlow) -> None:
        if self._is_off:
            self.record.unsaid += 1
            return
        event = flow.event(self.thing, len(self._said))
        self._said[event.claim] = self.engine.now_s, self._is_alarm(event, flow)
        self.record.sent[f"{flow.sender}.outbox"] += 1
        self.services[flow.sender].say(event)

    # What happens.

    def _follow_weather(self, windows: Mapping[str, list[Window]]) -> None:
        away = [*windows["offline"], *windows["region_down"]]
        look = partial(self._look_at_line, away, windows["silent"])
        self._during([*away, *windows["silent"]], look, look)
        self._during(windows["disk_full"], partial(self._set_disk, "full"), partial(self._set_disk, "well"))
        for begins_s, until_s in windows["no_power"]:
            self.engine.at(begins_s, partial(self._power_off, until_s))
        for begins_s, _ in windows["crash"]:
            self.engine.at(begins_s, self.kill)
        for each, when in self.plan.weather.of("slow", self.plan.seed, self.thing, self.plan.ends_s):
            self.record.weather.setdefault("slow", []).extend(when)
            slow = partial(self._set_line, each.bytes_per_s, each.delay_s)
            self._during(when, slow, partial(self._set_line, inf, CLOUD_DELAY_S))

    def _during(
        self, windows: Sequence[Window], begin: Callable[[], object], end: Callable[[], object]
    ) -> None:
        for begins_s, until_s in windows:
            self.engine.at(begins_s, begin)
            if until_s < inf:
                self.engine.at(until_s, end)

    def _look_at_line(self, away: Sequence[Window], silent: Sequence[Window]) -> None:
        line, now_s = self.uplink, self.engine.now_s
        if is_within(away, now_s):
            line.cut()
        elif is_within(silent, now_s):
            line.heal()
            line.go_silent()
        else:
            line.heal()

    def _set_disk(self, state: str) -> None:
        self.disk.state = state

    def _set_line(self, bytes_per_s: float, delay_s: float) -> None:
        self.uplink.bytes_per_s, self.uplink.delay_s = bytes_per_s, delay_s

    def _power_off(self, until_s: float) -> None:
        if self.engine.now_s >= until_s:
            return
        if self.forwarder is None:  # it is being started again, and goes with the device then
            self.engine.after(RESTART_S, partial(self._power_off, until_s))
            return
        self._is_off = True
        self.kill(power=True, for_s=until_s - self.engine.now_s)
        if until_s < inf:
            self.engine.at(until_s, self._power_on)

    def _power_on(self) -> None:
        self._is_off = False

    # What becomes of events.

    def note_stored(self, epoch: str, stored: StoredEvent, event: Envelope) -> None:
        """See `HomeModel`."""
        super().note_stored(epoch, stored, event)
        claim, record, outbox = event.claim, self.record, self._outbox(event)
        if claim in self._stored:
            return  # of a spool that began anew
        self._stored[claim] = self.engine.now_s
        self._said.setdefault(claim, (self.engine.now_s, False))
        self._outboxes[epoch, stored.sequence] = outbox, len(stored.json)
        record.taken[outbox] += 1
        if event.type == DEAD_LETTER_TYPE:
            channel = str(event.data()["channel"])
            record.letters[channel, reason_in(event) or ""] += 1
        for each in stored.destinations:
            if each != self._uplink.address:
                record.due[each] += 1
                record.alarms_due[each] += self._said[claim][1]

    def note_ended(self, epoch: str, delivery: Delivery, discard: Discard | None = None) -> None:
        """See `HomeModel`."""
        super().note_ended(epoch, delivery, discard)
        if discard is not None:
            outbox, _ = self._outboxes.get((epoch, delivery.sequence), ("", 0))
            self.record.ended[outbox, delivery.destination, discard.outcome, discard.reason] += 1
            if delivery.rank <= Priority.URGENT.rank and outbox != self._uplink.address:
                self.record.alarms_lost += 1

    def _outbox(self, event: Envelope) -> str:
        return f"{event.sender.service or self.contract.device.name}.outbox"

    def _accepted(self, client: str, message: BrokerMessage) -> bool:
        """Take down what IoT Core accepts of a device."""
        record, now_s = self.record, self.engine.now_s
        self.record.units["iot_rule"] += chunks(len(message.payload), IOT_BYTES)
        is_urgent = urgent_rule(RULE) in message.topic
        record.units["urgent" if is_urgent else "ordinary"] += 1
        accepted_ms = self.engine.now_ms
        frame = IngestFrame(message.payload, message.topic, client, "", accepted_ms)
        outboxes: list[str] = []
        for item in frame.items():
            event = item.event
            if event is None:
                continue
            decided = self._decided(Tapped(event, client, accepted_ms, item.expires_at_ms, accepted_ms))
            outboxes.append(decided.outbox)
            if event.claim in self._taken:
                record.copies += 1
                continue
            self._taken.add(event.claim)
            index = self._decisions.setdefault(decided, len(self._decisions))
            if index == len(record.decisions):
                record.decisions.append(decided)
            ends_ms = item.expires_at_ms
            record.decided.append(index)
            record.numbers.append(int(event.id[1:]) if event.id[1:].isdecimal() and event.id[0] == "e" else 0)
            record.accepted.append(now_s)
            record.said.append(self._said.get(event.claim, (now_s, False))[0])
            record.stored.append(self._stored.get(event.claim, nan))
            record.ends.append(inf if ends_ms is None else ends_ms / 1_000 - START_S)
        for each in outboxes:
            record.frames[each] += 1 / len(outboxes)
        return True

    def _decided(self, tapped: Tapped) -> Decided:
        """Decide as the cloud's routers do."""
        event = tapped.event
        checks = event.type in self._checked
        ruling = self._judge.ruling(tapped, checks_payload=checks, is_up=True)
        ends = [each for each in ruling.ends if each.place is Place.CLOUD and each.type == event.type]
        dead = (each.reason for each in ends if each.outcome is Outcome.DEAD_LETTERED)
        refused = ruling.refused or next(dead, None)
        inboxes = () if refused else tuple(dict.fromkeys((each.destination, each.expiry_ms) for each in ends))
        is_at_home = any(each.place is Place.DEVICE for each in ruling.ends)
        return Decided(event.type, self._outbox(event), ruling.priority, inboxes, refused, is_at_home)

    def _payload_refusal(self, event: Envelope) -> Refusal | None:
        if event.type not in self._payloads:
            from contract.loader import check_payload

            self._payloads[event.type] = check_payload(self.contract, event)
        return self._payloads[event.type]

    def _client(self, client: str, what: str) -> None:
        """Count the minutes of the device's connection."""
        if client != self.thing:
            return
        if what == "connected":
            self._connected_s = self.engine.now_s
        elif what == "disconnected" and self._connected_s is not None:
            self.record.units["iot_minute"] += (self.engine.now_s - self._connected_s) / MINUTE_S
            self._connected_s = None

    def _sample(self) -> None:
        used = nan if self.forwarder is None else float(self.forwarder.spool.space.used_bytes)
        self.record.used.append(used)

    # In the end.

    def finish(self) -> HomeRecord:
        """Return the record, when the time is over."""
        record = self.record
        self._client(self.thing, "disconnected")
        for name, service in self.services.items():
            inbox = f"{name}.inbox"
            handled = [(key[1:], at_s) for key, at_s in service.handled.items() if key[1:] in self._said]
            heard = [(at_s - self._said[claim][0], self._said[claim][1]) for claim, at_s in handled]
            record.latencies[inbox] = array("d", sorted(took_s for took_s, _ in heard))
            alarms = sorted(took_s for took_s, is_alarm in heard if is_alarm)
            record.alarm_latencies[inbox] = array("d", alarms)
        self._finish_unstored()
        changes: dict[str, list[tuple[float, int, int]]] = {}
        for key, kept in self.for_cloud.items():
            outbox, size = self._outboxes.get(key, ("", 0))
            changes.setdefault(outbox, []).append((kept.at_s, 1, size))
            if kept.ended_s < inf:
                changes[outbox].append((kept.ended_s, -1, -size))
            else:
                record.waiting[outbox] += 1
        record.curves = {outbox: _curve(each, self.plan.ends_s) for outbox, each in sorted(changes.items())}
        return record

    def _finish_unstored(self) -> None:
        """Tell apart what was said and not stored: refused, waiting, or lost."""
        record, brokers = self.record, self.broker.kept.values()
        payloads = [each for service in self.services.values() for each in service.pending.values()]
        messages = chain.from_iterable((*kept.waiting, *kept.in_flight.values()) for kept in brokers)
        payloads += [each.payload for each in messages if each.topic.endswith("/outbox")]
        waiting = {parse_event(each).claim for each in payloads}
        handled = {key[1:] for service in self.services.values() for key in service.handled}
        for claim in sorted(self._said.keys() - self._stored.keys() - self._taken - handled):
            outbox = f"{claim[0].rpartition('/')[2]}.outbox"
            (record.at_sender if claim in waiting else record.lost)[outbox] += 1
            record.alarms_lost += self._said[claim][1] and claim not in waiting
        for (channel, _), number in record.letters.items():
            record.lost[channel] = max(0, record.lost[channel] - number)


def is_within(windows: Sequence[Window], at_s: float) -> bool:
    """Return whether a moment is in one of `windows`."""
    return any(begins_s <= at_s < until_s for begins_s, until_s in windows)


def _curve(changes: Sequence[tuple[float, int, int]], ends_s: float) -> BacklogCurve:
    """Return the most that waits in each bucket, by the changes of it."""
    curve, events, size = BacklogCurve(), 0, 0
    ordered = sorted(changes)
    for (at_s, more, bytes_more), (next_s, _, _) in pairwise([*ordered, (ends_s, 0, 0)]):
        events, size = events + more, size + bytes_more
        first, last = (min(BUCKETS - 1, int(each / ends_s * BUCKETS)) for each in (at_s, next_s))
        for bucket in range(first, last + 1):
            curve.events[bucket] = max(curve.events[bucket], events)
            curve.bytes[bucket] = max(curve.bytes[bucket], size)
    return curve


def _steps(at_s: float, until_s: float, step_s: float) -> Iterator[float]:
    while at_s < until_s:
        yield at_s
        at_s += step_s


def run_home(plan: Simulation, number: int, told: Callable[[float], object] = lambda _: None) -> HomeRecord:
    """Simulate the home `number`; `told` hears each hour the share that is done."""
    line = QuietTimeline()
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder, _quiet():
        home = SimulatedHome(line, plan, f"home-{number}", Path(folder))
        at_s = 0.0
        while at_s < plan.ends_s:
            at_s = min(plan.ends_s, at_s + HOUR_S)
            line.run(at_s)
            told(at_s / plan.ends_s)
        record = home.finish()
        if home.forwarder is not None:
            home.forwarder.spool.close()
    return record


@contextmanager
def _quiet() -> Iterator[None]:
    """Discard the forwarder's log: that of a week is too long to be read."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


class QuietTimeline(Timeline):
    """A timeline that takes no notes."""

    def note(self, lane: str, text: str, *, is_fault: bool = False) -> None:
        """Take no note: of a week there would be too many."""
