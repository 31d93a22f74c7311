"""The uplink: send pending events to the cloud in compressed batches, with few of them unacknowledged.

An urgent event goes at once, in its own publish, ahead of all pending events. The rest forms batches
while earlier publishes are unacknowledged, or for as long as the outboxes of its events allow
(`BatchingDelays`), within the cloud's quota and what the line carries (`edge.publishing`). A delivery ends
when the broker acknowledges it, or refuses it permanently. The unacknowledged publishes of a connection that
ended are sent again from the spool, in small publishes first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile
from typing import TYPE_CHECKING

from edge.counts import Counts
from edge.delivery_queues import BEST_EFFORT_RANK, DeliveryQueues, UplinkQueue
from edge.numbering import texts_for_cloud
from edge.poison import PoisonDetector
from edge.publishing import CongestionWindow, InFlight, Pace, Publisher, Remedy, remedy, wire_size
from edge.settings import CloudSettings
from edge.spool import Delivery, PendingDelivery
from eventplane.contract import Channel, Contract, ParticipantKind, Priority
from eventplane.dead_letter import Refusal
from eventplane.envelope import pack_texts
from eventplane.limits import MAX_BATCH_BYTES
from eventplane.names import CORRELATION_ID, SENDER_SERVICE
from eventplane.reasons import Reason
from eventplane_mqtt.reconnection import Link

if TYPE_CHECKING:
    from edge.data_budget import DataBudget

PROBE = b"[]"
"""A batch of no events: readers take it like any other, and the broker has to acknowledge it."""

_MOST_CHARACTERS = (MAX_BATCH_BYTES - 1) // 4
"""Most text of one batch: it decompresses within the readers' bound at up to 4 bytes a character."""

_HEADROOM = 0.9
"""How much of the proportional share to try next when a batch is too large: texts compress unevenly."""

MOST_GATHERED = 0.5
"""How full the spool may be while its events wait for a batch. Ours: from 70 % on it refuses or drops some
(`edge.planning`), which must not happen to any while the cloud can be reached."""

_LIFETIME_SHARE = 2
"""An event waits for at most one part in so many of its lifetime. Ours: the rest is for the delivery."""

# The plane's attributes precede what a service wrote, so the first match is the plane's.
_SERVICE = re.compile(rf'"{SENDER_SERVICE}":"([^"]*)"')


def pack_first(texts: Sequence[str], limit: int) -> tuple[bytes, int]:
    """Return a compressed batch of as many of the first events as fit `limit` bytes, and their number.

    At least one of a non-empty `texts`, however large: an event cannot be divided.
    """
    sizes = accumulate(len(text) + 1 for text in texts)
    count = max(1, sum(1 for _ in takewhile(lambda size: size <= _MOST_CHARACTERS, sizes)))
    payload = pack_texts(texts[:count])
    while len(payload) > limit and count > 1:
        count = max(1, min(count - 1, int(count * limit / len(payload) * _HEADROOM)))
        payload = pack_texts(texts[:count])
    return payload, count


def pack_one(texts: Sequence[str], _limit: int) -> tuple[bytes, int]:
    """Return the first event alone, uncompressed, as any reader of CloudEvents understands it."""
    return texts[0].encode("utf-8"), 1


class BatchingDelays:
    """The time that events of each outbox may wait for a batch under `contract`, at most `longest_ms`.

    Requests and replies do not wait, and neither do events that are not stored.
    """

    def __init__(self, contract: Contract, longest_ms: int) -> None:
        everybody = contract.participants.values()
        on_device = (each for each in everybody if each.kind is not ParticipantKind.CLOUD_SERVICE)
        delays = {each.name: min(each.outbox.batching_delay_ms, longest_ms) for each in on_device}
        self._delays = {name: delay for name, delay in delays.items() if delay}

    @property
    def longest_s(self) -> float:
        """The longest that any event waits, seconds."""
        return max(self._delays.values(), default=0) / 1_000

    def due_ms(self, pending: Iterable[PendingDelivery]) -> int:
        """Return when the first of `pending` has to go, milliseconds of uptime; 0 for at once."""
        return min(map(self._due_ms, pending), default=0) if self._delays else 0

    def _due_ms(self, pending: PendingDelivery) -> int:
        found = _SERVICE.search(pending.json)
        delay = self._delays.get(found[1], 0) if found else 0
        if not delay or pending.delivery.rank == BEST_EFFORT_RANK or f'"{CORRELATION_ID}"' in pending.json:
            return 0
        if pending.expires_ms is not None:
            delay = min(delay, (pending.expires_ms - pending.stored_ms) // _LIFETIME_SHARE)
        return pending.stored_ms + delay


_URGENT_SHARE = 10
"""One in so many publishes of the window is kept free for urgent events."""


@dataclass(frozen=True, slots=True)
class AckResult:
    """The deliveries that an answer of the broker ends: `done`, or `refused` permanently."""

    done: Sequence[Delivery] = ()
    refused: Sequence[tuple[PendingDelivery, Refusal]] = ()


class Uplink:
    """Delivers one `channel` (the device's outbox) over `link`. Times are monotonic seconds.

    Urgent events have one of the `topics` of their own (True), so that nothing queues before them.

    `publisher` has what is unacknowledged, `budget` is that of the day, if there is one. Publishes are
    counted in `counts`; `acknowledge_s` sums up the seconds from publish to PUBACK.
    """

    def __init__(
        self,
        queues: DeliveryQueues,
        channel: Channel,
        link: Link,
        topics: Mapping[bool, str],
        settings: CloudSettings,
        counts: Counts,
    ) -> None:
        self.acknowledge_s = 0.0
        self._link = link
        self._topics = topics
        self.budget: DataBudget | None = None
        if settings.bytes_per_day:
            from edge.data_budget import DataBudget

            self.budget = DataBudget(settings.bytes_per_day, queues.spool)
        pace = Pace(settings.publishes_per_s, settings.bytes_per_s, self.budget)
        self.publisher = Publisher(link, pace, CongestionWindow(settings.payload_bytes), counts)
        self._settings = settings
        self._queues = queues
        single = settings.mode == "single"
        self._delay_s = min(channel.batching_delay_ms, settings.longest_delay_ms) / 1000
        self._delays: BatchingDelays | None = None
        self._pack = pack_one if single else pack_first
        self._most = 1 if single else settings.batch_events
        window = settings.max_unacknowledged
        self._ordinary_window = window - max(1, window // _URGENT_SHARE)
        self._address = channel.address
        self._queue = UplinkQueue(queues, channel.address)
        self._poison = PoisonDetector()
        self._usual_size = 0
        self._full = self._most  # events of a publish that the window filled
        self._waiting_since: float | None = None
        self._due_ms: int | None = None  # when the first ordinary event has to go; None: not known
        self._answered_at = 0.0
        self._is_flushing = False

    def follow(self, contract: Contract) -> None:
        """Let events wait for a batch for as long as the outboxes of `contract` allow."""
        self._delays = BatchingDelays(contract, self._settings.longest_delay_ms)
        self._due_ms = None

    def flush(self, now: float) -> None:
        """Send what the window and the pace allow, without waiting for a batch."""
        self._is_flushing = True
        self.pump(now)

    def disconnected(self, *publish: InFlight, why: str = "") -> AckResult:
        """Start again from the spool: the connection is gone. Return what the cloud will never take."""
        poison = self._poison.dropped([*publish, *self.publisher.in_flight.values()])
        result = self._refuse(poison, why or "the cloud's broker ends every connection at it")
        self._forget()
        return result

    def acknowledged(self, mid: int, failure: str | None, now: float) -> AckResult:
        """Return the deliveries that PUBACK `mid` ends; none for an unknown one."""
        publish = self.publisher.answered(mid, now, accepted=failure is None)
        if publish is None:
            return AckResult()
        self._answered_at = now
        if failure is None:
            if publish.size:  # a ping is no publish
                self.acknowledge_s += now - publish.sent_at
            self._poison.acknowledged(publish)
            return AckResult(self._queues.delivered(publish.deliveries))
        return self._failed(publish, failure, now)

    def tick(self, now: float) -> None:
        """Reconnect when a PUBACK is overdue, by the time since the publish left: a throttled one gets none.

        While the link is down, an urgent event shortens the wait for the next attempt.
        """
        if not self._link.is_dialling:
            self._queues.clear(self._address)
            if self._queue.urgent(1):
                self._link.hurry()
        overdue = self.publisher.overdue(self._settings.puback_timeout_s, now)
        if overdue is None:
            return
        if self._answered_at > overdue.sent_at:
            # Others were answered: the connection works, this one was throttled.
            self.publisher.pace.slow_down(now)
        self._link.reset(f"no answer within {self._settings.puback_timeout_s} s", now)
        self._poison.restarted()
        self._forget()

    def deadline(self) -> float | None:
        """Return when `tick` or `pump` has something to do without a message, None for never."""
        due = [
            self.publisher.deadline(self._settings.puback_timeout_s),
            self.publisher.wake_at if self._link.up else None,
        ]
        return min((each for each in due if each is not None), default=None)

    def pump(self, now: float) -> None:
        """Send what the window and the pace allow."""
        self.publisher.wake_at = None
        if not self._link.up:
            return
        if self._poison.urgent and self._poison.size and not self.publisher and not self._queue.has_urgent():
            self._poison.clear()
        if not (self._poison.needs_proof and self._poison.urgent):
            # Ordinary suspects hold up no urgent event: the cloud may refuse their topic only.
            self._pump_urgent(now)
        if not self._poison.needs_proof:
            self._pump_repeated(now)
            self._pump_ordinary(now)
        self._pump_probe(now)
        self.publisher.look(now)

    def _pump_urgent(self, now: float) -> None:
        tried = self._poison.size if self._poison.urgent else None
        window = 1 if tried else self._settings.max_unacknowledged
        while self.publisher.has_room(window, urgent=True):
            pending = self._queue.urgent(tried or self._most)
            if not pending or not (sent := self._send(pending, now, urgent=True)):
                return
            self._queue.take(sent)

    def _pump_repeated(self, now: float) -> None:
        while self._has_room() and (pending := self._queue.repeated()):
            urgent = pending[0].delivery.rank <= Priority.URGENT.rank
            sent = self._send(pending, now, urgent=urgent)
            self._queue.repeat(tuple(each.delivery for each in pending[len(sent) :]))
            if not sent:
                return

    def _pump_ordinary(self, now: float) -> None:
        most = self._poison.size or self._most
        # An urgent event that finds no room, where the line answers late or never, is the next to go.
        while self._has_room() and not self._queue.has_urgent():
            count = self._queue.fill(most)
            if not count:
                self._begin_batch()
                return
            if self._waiting_since is None:
                self._waiting_since = now
            if not self._gather(count, now) or not self.publisher.may_go(self._usual_size, now, urgent=False):
                return
            if not self._poison.size and not self._measure_round_trip(now):
                return
            sent = self._send(self._queue.ordinary(most), now, urgent=False)
            if not sent:
                return
            self._queue.take(sent)
            self._begin_batch()

    def _begin_batch(self) -> None:
        self._waiting_since = self._due_ms = None
        self._usual_size = 0

    def _pump_probe(self, now: float) -> None:
        """Request an answer when there was none for long, or when the connection has to prove itself."""
        if self.publisher:
            return
        due_at = max(self._answered_at, self._link.up_since) + self._settings.probe_interval_s
        if now < due_at and not self._poison.needs_proof:
            self.publisher.wake(due_at)
            return
        # Where the suspects would go: a topic that the cloud refuses proves nothing against an event.
        topic = self._topics[self._poison.urgent]
        if self.publisher.may_go(wire_size(topic, PROBE), now, urgent=True):
            if self._settings.mode == "single" or (self.budget and not self._poison.needs_proof):
                # Readers other than ours may not accept an empty batch, and a day's publishes take 50 kB.
                self.publisher.ping(now)
            else:
                self.publisher.publish(topic, PROBE, (), now, urgent=True)

    def _has_room(self) -> bool:
        """Return whether another ordinary publish may go: more than the line carries delays urgent events."""
        return self.publisher.has_room(1 if self._poison.size else self._ordinary_window, urgent=False)

    def _measure_round_trip(self, now: float) -> bool:
        """Measure the round trip if it is time to, and return whether ordinary events may go meanwhile."""
        window = self.publisher.window
        # Urgent events do not wait for it, so they may always be in flight.
        if window.measures(now, self.publisher.bytes_in_flight(urgent=False)):
            self.publisher.measure(now)
        return not window.is_stale(now)

    def _gather(self, count: int, now: float) -> bool:
        """Return True if a batch of `count` ordinary events has to go; else wake the loop when it has to."""
        if count >= self._full or self._queue.more or self._poison.size or self._is_flushing:
            return True
        if self.publisher.bytes_in_flight(urgent=False) or self._waiting_since is None:
            return False
        due_at = self._waiting_since + self._delay_s
        if now >= due_at and self._delays and self._queues.spool.space.pressure < MOST_GATHERED:
            # The earliest event decides: the others go along.
            due_at = now + (self._earliest_ms(self._delays) - self._queues.spool.clock()) / 1000
        if now < due_at:
            self.publisher.wake(due_at)
        return now >= due_at

    def _earliest_ms(self, delays: BatchingDelays) -> int:
        """Return when the first ordinary event has to go, looking only at those that are new."""
        fresh = self._queue.fresh()
        if self._due_ms is None:
            self._due_ms = delays.due_ms(self._queue.ordinary(self._most))
        elif fresh:
            self._due_ms = min(self._due_ms, delays.due_ms(fresh))
        return self._due_ms

    def _send(self, pending: Sequence[PendingDelivery], now: float, *, urgent: bool) -> tuple[Delivery, ...]:
        """Publish as many of `pending` as fit one payload and return them; none if the pace forbids it."""
        topic = self._topics[urgent]
        texts = texts_for_cloud(pending, self._queues.spool.clock())
        payload, count = self._pack(texts, self.publisher.window.size)
        size = wire_size(topic, payload)
        if not urgent:
            self._usual_size = size  # so that a batch that has to wait is packed only once
            self._full = count if count < len(texts) else self._most
        if not self.publisher.may_go(size, now, urgent=urgent):
            return ()
        deliveries = tuple(each.delivery for each in pending[:count])
        self.publisher.publish(topic, payload, deliveries, now, urgent=urgent)
        return deliveries

    def _failed(self, publish: InFlight, failure: str, now: float) -> AckResult:
        deliveries = publish.deliveries
        match remedy(failure):
            case Remedy.SLOW_DOWN:
                self.publisher.pace.slow_down(now)
                self._queue.repeat(deliveries)
            case Remedy.SPLIT:
                if len(deliveries) == 1:
                    return self._refuse(deliveries[0], failure)
                half = len(deliveries) // 2
                self._queue.repeat(deliveries[:half], deliveries[half:])
            case Remedy.CONFIGURE:
                advice = "see that the device's policy and the setting cloud.topic agree"
                topic = self._topics[publish.urgent if deliveries else self._poison.urgent]
                self._link.reset(f"publish to {topic} refused: {failure}; {advice}", now)
                self._poison.restarted()
                self._forget()
            case Remedy.RECONNECT:
                self._link.reset(f"publish refused: {failure}", now)
                return self.disconnected(publish, why=failure)
        return AckResult()

    def _refuse(self, delivery: Delivery | None, detail: str) -> AckResult:
        if delivery is None or self._queues.end_volatile(delivery, Reason.REFUSED_BY_CLOUD):
            return AckResult()
        pending = self._queues.find(delivery)
        if pending is None:
            return AckResult()
        return AckResult((), ((pending, Refusal(Reason.REFUSED_BY_CLOUD, detail)),))

    def _forget(self) -> None:
        self.publisher.forget()
        self._full = self._most
        self._begin_batch()
        self._queue.rewind()
