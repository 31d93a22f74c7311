"""The way to the cloud: what waits in the spool, in compressed batches, at most so many unacknowledged.

An urgent event goes at once, in its own publish, ahead of all that waits. The rest forms batches by itself
while earlier publishes are unacknowledged, or for as long as the outboxes of its events allow
(`edge.gathering`), and keeps to the pace that the cloud allows. Only the broker's PUBACK ends a delivery, or
its word that it will never take the event; a connection that ends takes its unacknowledged publishes with it
and the next one sends them again from the spool.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edge.backlog import Backlog
from edge.counts import Counts
from edge.gathering import MOST_GATHERED, Gathering
from edge.in_flight import Publish
from edge.link import Link
from edge.options import Topics, UplinkLimits
from edge.outgoing import Outgoing
from edge.pacing import Pace, wire_size
from edge.packing import PROBE, pack_first, pack_one
from edge.publisher import Publisher
from edge.refusals import Remedy, remedy
from edge.spool import Delivery, Waiting
from edge.suspicion import Suspicion
from eventplane.contract import Channel, Contract, Priority
from eventplane.delivery import Refusal

REFUSED_BY_CLOUD = "refused_by_cloud"
"""The reason of a dead letter that the cloud's broker does not take."""

_URGENT_SHARE = 10
"""One in so many publishes of the window is kept free for urgent events."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What ends: deliveries that are `done`, and those that the cloud will never take."""

    done: Sequence[Delivery] = ()
    refused: Sequence[tuple[Waiting, Refusal]] = ()


class Uplink:
    """Carries one `channel` (the device's outbox) over `link` to `topics`. Times are monotonic seconds.

    It counts its publishes in `counts`, and itself the seconds from publishes to the PUBACKs that took them
    (`acknowledge_s`).
    """

    def __init__(
        self,
        outgoing: Outgoing,
        channel: Channel,
        link: Link,
        topics: Topics,
        limits: UplinkLimits,
        counts: Counts,
    ) -> None:
        self.acknowledge_s = 0.0
        self._link = link
        self._topics = topics
        self._pace = Pace(limits.publishes_per_s, limits.bytes_per_s)
        self._publisher = Publisher(link, self._pace, counts)
        self._under_way = self._publisher.under_way
        self._limits = limits
        self._spool = outgoing.spool
        self._life = outgoing.spool.life
        self._delay_s = min(channel.batching_delay_ms, limits.longest_delay_ms) / 1000
        self._gathering: Gathering | None = None
        self._pack = pack_one if limits.single else pack_first
        self._most = 1 if limits.single else limits.batch_events
        self._ordinary_window = limits.window - max(1, limits.window // _URGENT_SHARE)
        self._backlog = Backlog(outgoing, channel.address)
        self._suspicion = Suspicion()
        self._usual_size = 0
        self._waiting_since: float | None = None
        self._heard_at = 0.0

    def follow(self, contract: Contract) -> None:
        """Let events wait for company for as long as the outboxes of `contract` say."""
        self._gathering = Gathering(contract, self._limits.longest_delay_ms)

    @property
    def idle(self) -> bool:
        """Whether no publish is unacknowledged."""
        return not self._under_way

    @property
    def unacknowledged(self) -> int:
        """Publishes without a PUBACK."""
        return len(self._under_way)

    @property
    def slowed(self) -> int:
        """How often the cloud's quota made the pace slower."""
        return self._pace.slowed

    def disconnected(self) -> Settled:
        """The connection is gone: all that the spool still holds is to be sent over the next one."""
        convicted = self._suspicion.dropped(self._under_way.all)
        self._forget()
        return self._refuse(convicted, "the cloud's broker ends every connection at it")

    def acknowledged(self, mid: int, failure: str | None, now: float) -> Settled:
        """What PUBACK `mid` ends; nothing for an unknown one."""
        publish = self._publisher.answered(mid, accepted=failure is None)
        if publish is None:
            return Settled()
        self._heard_at = now
        if failure is None:
            if publish.size:  # a ping is no publish
                self.acknowledge_s += now - publish.sent_at
            self._suspicion.acknowledged(publish)
            return Settled(self._backlog.delivered(publish.deliveries))
        return self._failed(publish, failure, now)

    def tick(self, now: float) -> None:
        """Reconnect when a PUBACK is overdue: a throttled publish gets none, and nobody says so."""
        oldest = self._under_way.oldest
        if oldest is None or now < oldest.sent_at + self._limits.puback_timeout_s:
            return
        if self._heard_at > oldest.sent_at:
            self._pace.slow_down(now)  # others were answered: the line works, this one was too much
        self._link.reset(f"no answer within {self._limits.puback_timeout_s} s", now)
        self._suspicion.restarted()
        self._forget()

    def deadline(self) -> float | None:
        """When `tick` or `pump` has something to do by itself, None for never."""
        oldest = self._under_way.oldest
        due = [
            oldest.sent_at + self._limits.puback_timeout_s if oldest else None,
            self._publisher.wake_at if self._link.up else None,
        ]
        return min((each for each in due if each is not None), default=None)

    def pump(self, now: float) -> None:
        """Send what may be sent."""
        self._publisher.wake_at = None
        if not self._link.up:
            return
        if not self._suspicion.needs_proof:
            self._pump_urgent(now)
            self._pump_repeated(now)
            self._pump_ordinary(now)
        self._pump_probe(now)

    def _pump_urgent(self, now: float) -> None:
        tried = self._suspicion.size if self._suspicion.urgent else None
        window = 1 if tried else self._limits.window
        while len(self._under_way) < window:
            waiting = self._backlog.urgent(tried or self._most)
            if not waiting or not (sent := self._send(waiting, now, urgent=True)):
                return
            self._backlog.take(sent)

    def _pump_repeated(self, now: float) -> None:
        while self._has_room() and (waiting := self._backlog.repeated()):
            urgent = waiting[0].delivery.rank <= Priority.URGENT.rank
            sent = self._send(waiting, now, urgent=urgent)
            self._backlog.repeat(tuple(each.delivery for each in waiting[len(sent) :]))
            if not sent:
                return

    def _pump_ordinary(self, now: float) -> None:
        while self._has_room():
            waiting = self._backlog.ordinary(self._suspicion.size or self._most)
            if not waiting:
                self._waiting_since = None
                return
            if self._waiting_since is None:
                self._waiting_since = now
            if not self._is_due(waiting, now) or not self._publisher.may_go(
                self._usual_size, now, urgent=False
            ):
                return
            sent = self._send(waiting, now, urgent=False)
            if not sent:
                return
            self._backlog.take(sent)
            self._waiting_since = None

    def _pump_probe(self, now: float) -> None:
        """Ask for a sign of life when there was none for long, or when the connection has to prove itself."""
        if self._under_way:
            return
        due_at = max(self._heard_at, self._link.up_since) + self._limits.probe_interval_s
        if now < due_at and not self._suspicion.needs_proof:
            self._publisher.wake(due_at)
            return
        # Where the suspects would go: a topic that the cloud refuses proves nothing against an event.
        topic = self._topics.of(urgent=self._suspicion.urgent)
        if self._publisher.may_go(wire_size(topic, PROBE), now, urgent=True):
            if self._limits.single:  # other readers than ours may not know what to do with an empty batch
                self._publisher.ping(now)
            else:
                self._publisher.publish(topic, PROBE, (), now, urgent=True)

    def _has_room(self) -> bool:
        """Whether an ordinary publish may be under way beside those that are.

        Beyond one payload's worth of bytes they would only queue in front of the next urgent event.
        """
        window = 1 if self._suspicion.size else self._ordinary_window
        return len(self._under_way) < window and self._under_way.ordinary_bytes < self._limits.payload_bytes

    def _is_due(self, waiting: Sequence[Waiting], now: float) -> bool:
        if len(waiting) >= self._most or self._backlog.more or self._suspicion.size:
            return True
        if self._under_way.ordinary or self._waiting_since is None:
            return False
        due_at = self._waiting_since + self._delay_s
        if now >= due_at and self._gathering and self._spool.pressure < MOST_GATHERED:
            # By the earliest event due: the others go along.
            due_at = now + (self._gathering.due_ms(waiting) - self._life()) / 1000
        if now < due_at:
            self._publisher.wake(due_at)
        return now >= due_at

    def _send(self, waiting: Sequence[Waiting], now: float, *, urgent: bool) -> tuple[Delivery, ...]:
        """Send as many of `waiting` as fit one payload, none when the pace does not allow it."""
        topic = self._topics.of(urgent=urgent)
        payload, count = self._pack([each.json for each in waiting], self._limits.payload_bytes)
        size = wire_size(topic, payload)
        if not urgent:
            self._usual_size = size  # so that a batch too large for now is packed only once
        if not self._publisher.may_go(size, now, urgent=urgent):
            return ()
        deliveries = tuple(each.delivery for each in waiting[:count])
        self._publisher.publish(topic, payload, deliveries, now, urgent=urgent)
        return deliveries

    def _failed(self, publish: Publish, failure: str, now: float) -> Settled:
        deliveries = publish.deliveries
        match remedy(failure):
            case Remedy.SLOW_DOWN:
                self._pace.slow_down(now)
                self._backlog.repeat(deliveries)
            case Remedy.SPLIT:
                if len(deliveries) == 1:
                    return self._refuse(deliveries[0], failure)
                half = len(deliveries) // 2
                self._backlog.repeat(deliveries[:half], deliveries[half:])
            case Remedy.CONFIGURE:
                advice = "see that the device's policy and the setting cloud.topic agree"
                topic = self._topics.of(urgent=publish.urgent if deliveries else self._suspicion.urgent)
                self._link.reset(f"publish to {topic} refused: {failure}; {advice}", now)
                self._suspicion.restarted()
                self._forget()
            case Remedy.RECONNECT:
                self._link.reset(f"publish refused: {failure}", now)
                convicted = self._suspicion.dropped([publish, *self._under_way.all])
                self._forget()
                return self._refuse(convicted, failure)
        return Settled()

    def _refuse(self, delivery: Delivery | None, detail: str) -> Settled:
        waiting = self._backlog.refused(delivery, REFUSED_BY_CLOUD) if delivery else None
        if waiting is None:
            return Settled()
        return Settled((), ((waiting, Refusal(REFUSED_BY_CLOUD, detail)),))

    def _forget(self) -> None:
        self._under_way.clear()
        self._waiting_since = None
        self._backlog.rewind()
