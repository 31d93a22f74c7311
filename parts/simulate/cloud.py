"""The cloud behind the homes: routers, inboxes and their readers, as models of time. Pure, but for its draws.

What the routers decide was decided by their rules (`one_home`); here is when, and what comes of it. Readers
try again and give up by the schedule of the product (`eventplane.retries`).
"""

from __future__ import annotations

import heapq
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import exp, inf, log
from typing import Final, NamedTuple

from eventplane.contract import Channel, Contract, Ordering, Priority
from eventplane.contract.schedules import schedule_of
from eventplane.guarantee import BY_CHANNEL, BY_EVENT
from eventplane.names import OWN_SERVICES
from eventplane.reasons import Outcome
from eventplane.retries import RetrySchedule
from parts.simulate.one_home import Decided, HomeRecord, Simulation, is_within
from parts.simulate.timeline import draws
from parts.simulate.weather import Window, merged

URGENT_S: Final = 0.0825, 0.165
NORMAL_S: Final = 0.116, 0.214
"""From IoT Core to the inbox, seconds: the median, and what one in a hundred exceeds. `make bench-cloud`
measured it in the emulated cloud, with warm functions."""

WINDOW_S: Final = 5.0
"""The batching window of the router of what is not urgent, seconds (`stacks/environments.toml`)."""

HANDLES_S: Final = 0.02
"""What a reader takes for an event, and how late it sees one that came, seconds. Assumed."""

GIVEN_UP: Final = "given_up"
"""The reason of what a reader failed to handle until its time was over; a real one has the error's name."""

WAITING: Final = "waiting"
"""The end of what still waits when the simulation ends."""

DELETED: Final = "deleted"
"""The end of what a queue has kept for its retention, unread."""

_NORMAL_99: Final = 2.3263
"""Standard deviations beyond which a hundredth of the normal distribution is."""


class Lane(NamedTuple):
    """The time of a lane, drawn log-normally, with a batching window."""

    median_s: float
    p99_s: float
    window_s: float = 0.0

    def draw_s(self, gauss: float, share: float) -> float:
        """Return the time of a normally distributed number, and a share of the window."""
        spread = log(self.p99_s / self.median_s) / _NORMAL_99
        return self.median_s * exp(spread * gauss) + self.window_s * share


LANES: Final = {True: Lane(*URGENT_S), False: Lane(*NORMAL_S, WINDOW_S)}
"""By whether the event is urgent."""


class InboxEvent(NamedTuple):
    """An event in an inbox: when it came there, and where it is from."""

    at_s: float
    home: int
    row: int


@dataclass(slots=True)
class Waiting:
    """An event that its reader has not settled."""

    sent: InboxEvent
    schedule: RetrySchedule
    ends_s: float
    attempt: int = 0
    failed_s: float = inf
    """Its first failed attempt."""


class EventWay(NamedTuple):
    """The way of an event to an inbox, moments in seconds: routed, first failed (inf: never), its end.

    `latency_s` is inf where it did not arrive, `end` says how it ended.
    """

    latency_s: float
    home: int
    row: int
    inbox: str
    routed_s: float
    failed_s: float
    attempts: int
    end_s: float
    end: str


@dataclass
class InboxRecord:
    """The ends of all events due to an inbox: seconds from saying to handling, and the other ends."""

    due: int = 0
    latencies: array[float] = field(default_factory=lambda: array("d"))
    urgent_latencies: array[float] = field(default_factory=lambda: array("d"))
    urgent: Counter[str] = field(default_factory=Counter)
    """Urgent events of services, by how they ended."""
    ended: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By outcome and reason."""
    waiting: int = 0
    attempts: int = 0
    worst: EventWay | None = None
    """The way of the urgent event that never arrived, or else was the slowest."""
    rank: tuple[bool, float] = (False, -1.0)


@dataclass
class CloudRecord:
    """The inboxes by name, and what the routers refused or led nowhere, by outbox, outcome and reason."""

    inboxes: dict[str, InboxRecord] = field(default_factory=dict)
    refused: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    urgent_lost: int = 0
    """Urgent events of services that were refused, or led nowhere and not to an inbox at home either."""


class CloudStage:
    """Routes what `homes` sent under the weather of `plan`, and lets it be read."""

    def __init__(self, plan: Simulation, homes: Sequence[HomeRecord]) -> None:
        self._plan = plan
        self._contract: Contract = plan.contract
        self._homes = homes
        self._down = plan.weather.when("region_down", plan.seed, "cloud", plan.ends_s)
        self._schedules: dict[tuple[str, Priority], RetrySchedule] = {}
        self.record = CloudRecord()

    def run(self) -> CloudRecord:
        """Return what became of everything."""
        inboxes: defaultdict[str, list[InboxEvent]] = defaultdict(list)
        rows = heapq.merge(*map(self._rows, range(len(self._homes))))
        for accepted_s, home, row, decided, random in rows:
            at_s = self._routed_s(accepted_s, decided.priority, random)
            self._route(inboxes, at_s, home, row, decided)
        for name in sorted(inboxes):
            self._read(name, sorted(inboxes[name]))
        return self.record

    def _rows(self, home: int) -> Iterator[tuple[float, int, int, Decided, tuple[float, float]]]:
        record = self._homes[home]
        random = draws(self._plan.seed, "routers", record.thing)
        for row, accepted_s in enumerate(record.accepted):
            chance = random.gauss(0.0, 1.0), random.random()
            yield accepted_s, home, row, record.decisions[record.decided[row]], chance

    def _routed_s(self, accepted_s: float, priority: Priority, random: tuple[float, float]) -> float:
        """Return when the routers are done with it: what came just before an outage is routed after it."""
        took_s = LANES[priority is Priority.URGENT].draw_s(*random)
        at_s = accepted_s + took_s
        open_s = _after(self._down, at_s)
        return at_s if open_s == at_s else open_s + took_s

    def _route(
        self, inboxes: defaultdict[str, list[InboxEvent]], at_s: float, home: int, row: int, decided: Decided
    ) -> None:
        record, homes = self.record, self._homes[home]
        is_own = decided.outbox == self._contract.device.outbox.address
        is_alarm = decided.priority is Priority.URGENT and not is_own
        if decided.refused is not None:
            record.refused[decided.outbox, Outcome.DEAD_LETTERED, decided.refused] += 1
            record.urgent_lost += is_alarm
        elif not decided.inboxes:
            record.refused[decided.outbox, Outcome.UNROUTED, "no_route"] += 1
            record.urgent_lost += is_alarm and not decided.is_at_home
        for name, lifetime_ms in decided.inboxes:
            inbox = record.inboxes.setdefault(name, InboxRecord())
            inbox.due += 1
            ends_s = inf if lifetime_ms is None else homes.accepted[row] + lifetime_ms / 1_000
            sent = InboxEvent(at_s, home, row)
            waiting = self._waiting(sent, self._contract.channel(name))
            if at_s >= self._plan.ends_s:
                self._end(name, waiting, WAITING, "", at_s)
            elif at_s >= min(waiting.ends_s, ends_s):
                why = BY_EVENT if at_s >= waiting.ends_s else BY_CHANNEL
                self._end(name, waiting, Outcome.EXPIRED, why, at_s)
            else:
                inboxes[name].append(sent)

    # The reader of an inbox.

    def _read(self, name: str, sent: Sequence[InboxEvent]) -> None:
        """Let the reader of an inbox handle what was sent there, one event at a time, as it is due.

        In an ordered inbox what follows of the same sender is due when an event is settled.
        """
        plan, channel, inbox = self._plan, self._contract.channel(name), self.record.inboxes[name]
        fails, stops = (
            self._windows("reader_fails", channel),
            [*self._windows("reader_stops", channel), *self._down],
        )
        stops, free_s = merged(stops, inf), 0.0
        random, due = draws(plan.seed, "reader", name), self._queues(channel, sent)
        heads = [(each[-1].sent.at_s + HANDLES_S, number) for number, each in enumerate(due)]
        heapq.heapify(heads)
        while heads:
            at_s, number = heapq.heappop(heads)
            waiting = due[number][-1]
            at_s = _after(stops, max(at_s, free_s))
            if (end := self._over(waiting, channel, at_s)) is None:
                free_s = at_s + HANDLES_S
                inbox.attempts += 1
                waiting.attempt += 1
                end = Outcome.DELIVERED
                if is_within(fails, at_s):
                    waiting.failed_s = min(waiting.failed_s, at_s)
                    age_s = at_s - waiting.failed_s
                    if not waiting.schedule.is_over(age_s):
                        wait_s = waiting.schedule.wait_s(age_s, waiting.attempt, random.random())
                        heapq.heappush(heads, (at_s + wait_s, number))
                        continue
                    end = Outcome.DEAD_LETTERED
            self._end(name, waiting, end, GIVEN_UP if waiting.failed_s <= at_s else "", max(at_s, free_s))
            due[number].pop()
            if due[number]:
                heapq.heappush(heads, (max(due[number][-1].sent.at_s + HANDLES_S, at_s), number))

    def _queues(self, channel: Channel, sent: Sequence[InboxEvent]) -> list[list[Waiting]]:
        """Return what is due, in lists of what has to follow each other, the first one last."""
        if channel.ordering is not Ordering.SOURCE:
            return [[self._waiting(each, channel)] for each in sent]
        found: defaultdict[tuple[int, str, Priority], list[Waiting]] = defaultdict(list)
        for each in reversed(sent):
            decided = self._of(each)
            found[each.home, decided.outbox, decided.priority].append(self._waiting(each, channel))
        return list(found.values())

    def _over(self, waiting: Waiting, channel: Channel, at_s: float) -> str | None:
        """Return how an event has ended before a reader can take it; None while it has not."""
        kept_until_s = waiting.sent.at_s + channel.retention_s
        over_s, end = min((waiting.ends_s, str(Outcome.EXPIRED)), (kept_until_s, DELETED))
        if at_s >= over_s and over_s < self._plan.ends_s:
            return end
        return WAITING if at_s >= self._plan.ends_s else None

    def _end(self, name: str, waiting: Waiting, end: str, why: str, at_s: float) -> None:
        """Take down the `end` of an event at an inbox."""
        inbox, sent, decided = self.record.inboxes[name], waiting.sent, self._of(waiting.sent)
        latency_s = inf
        if end == Outcome.DELIVERED:
            latency_s = at_s - self._homes[sent.home].said[sent.row]
            inbox.latencies.append(latency_s)
        elif end == WAITING:
            inbox.waiting += 1
        else:
            inbox.ended[end, {Outcome.EXPIRED: why or BY_EVENT, DELETED: "retention_s"}.get(end, why)] += 1
        if decided.priority is not Priority.URGENT or decided.outbox == self._contract.device.outbox.address:
            return
        inbox.urgent[end] += 1
        if end == Outcome.DELIVERED:
            inbox.urgent_latencies.append(latency_s)
        # What never arrived is worse than what waits, which is worse than the slowest.
        rank = (end not in (WAITING, Outcome.DELIVERED), latency_s if end != WAITING else at_s)
        if inbox.worst is None or rank > inbox.rank:
            inbox.rank = rank
            inbox.worst = EventWay(
                latency_s, sent.home, sent.row, name, sent.at_s, waiting.failed_s, waiting.attempt, at_s, end
            )

    def _waiting(self, sent: InboxEvent, channel: Channel) -> Waiting:
        key = channel.address, self._of(sent).priority
        if key not in self._schedules:
            self._schedules[key] = schedule_of(channel, key[1])
        return Waiting(sent, self._schedules[key], self._homes[sent.home].ends[sent.row])

    def _of(self, sent: InboxEvent) -> Decided:
        record = self._homes[sent.home]
        return record.decisions[record.decided[sent.row]]

    def _windows(self, what: str, channel: Channel) -> list[Window]:
        plan = self._plan
        found = plan.weather.of(what, plan.seed, "cloud", plan.ends_s)
        whose = {channel.participant} if channel.participant in OWN_SERVICES else {channel.participant, ""}
        return [one for each, those in found if each.reader in whose for one in those]


def _after(windows: Sequence[Window], at_s: float) -> float:
    """Return the first moment from `at_s` on that is in none of `windows`, which are in order."""
    for begins_s, until_s in windows:
        if begins_s <= at_s < until_s:
            at_s = until_s
    return at_s
