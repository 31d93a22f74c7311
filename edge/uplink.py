"""The way to the cloud: what waits in the spool, in compressed batches, at most so many unacknowledged.

An urgent event goes at once, in its own publish, ahead of all that waits. The rest forms batches by itself
while earlier publishes are unacknowledged, or for as long as the channel allows. Only the broker's PUBACK
ends a delivery; a connection that ends takes its unacknowledged publishes with it and the next one sends
them again from the spool.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edge.link import Link
from edge.outgoing import Outgoing
from edge.packing import pack_first
from edge.spool import Delivery, Waiting
from eventplane.contract import Channel

_URGENT_SHARE = 10
"""One in so many publishes of the window is kept free for urgent events."""


@dataclass(frozen=True, slots=True)
class UplinkLimits:
    """`window` unacknowledged publishes of `payload_bytes` and `batch_events` each; `puback_timeout_s`."""

    window: int
    payload_bytes: int
    batch_events: int
    puback_timeout_s: float


@dataclass(frozen=True, slots=True)
class _Publish:
    deliveries: tuple[Delivery, ...]
    sent_at: float
    urgent: bool


class Uplink:
    """Carries one `channel` (the device's outbox) over `link` to `topic`. Times are monotonic seconds."""

    def __init__(
        self, outgoing: Outgoing, channel: Channel, link: Link, topic: str, limits: UplinkLimits
    ) -> None:
        self._link = link
        self._topic = topic
        self._limits = limits
        self._delay_s = channel.batching_delay_ms / 1000
        self._lanes = outgoing.lanes(channel.address)
        self._urgent, *self._ordinary = self._lanes.values()
        self._ordinary_window = limits.window - max(1, limits.window // _URGENT_SHARE)
        self._under_way: dict[int, _Publish] = {}
        self._ordinary_under_way = 0
        self._waiting_since: float | None = None

    @property
    def idle(self) -> bool:
        """Whether no publish is unacknowledged."""
        return not self._under_way

    def rewind(self) -> None:
        """The connection is gone: all that the spool still holds is to be sent over the next one."""
        self._under_way.clear()
        self._ordinary_under_way = 0
        self._waiting_since = None
        for lane in self._lanes.values():
            lane.rewind()

    def acknowledged(self, mid: int, failure: str | None, now: float) -> tuple[Delivery, ...]:
        """The deliveries that PUBACK `mid` ends; none for an unknown one or a failure."""
        if mid not in self._under_way:
            return ()
        if failure is not None:
            self._link.reset(f"publish refused: {failure}", now)
            self.rewind()
            return ()
        publish = self._under_way.pop(mid)
        if not publish.urgent:
            self._ordinary_under_way -= 1
        return publish.deliveries

    def tick(self, now: float) -> None:
        """Reconnect when a PUBACK is overdue: a throttled publish gets none, and nobody says so."""
        overdue = self._overdue_at()
        if overdue is not None and now >= overdue:
            self._link.reset(f"no PUBACK within {self._limits.puback_timeout_s} s", now)
            self.rewind()

    def deadline(self) -> float | None:
        """When `tick` or `pump` has something to do by itself, None for never."""
        due = [self._overdue_at()]
        if self._link.up and self._waiting_since is not None and not self._ordinary_under_way:
            due.append(self._waiting_since + self._delay_s)
        return min((each for each in due if each is not None), default=None)

    def pump(self, now: float) -> None:
        """Send what may be sent."""
        if self._link.up:
            self._pump_urgent(now)
            self._pump_ordinary(now)

    def _pump_urgent(self, now: float) -> None:
        while len(self._under_way) < self._limits.window:
            waiting = self._urgent.peek(self._limits.batch_events)
            if not waiting:
                return
            self._publish(waiting, now, urgent=True)

    def _pump_ordinary(self, now: float) -> None:
        while len(self._under_way) < self._ordinary_window:
            waiting = self._peek_ordinary()
            if not waiting:
                self._waiting_since = None
                return
            if self._waiting_since is None:
                self._waiting_since = now
            if not self._is_due(len(waiting), now):
                return
            self._publish(waiting, now, urgent=False)
            self._waiting_since = None

    def _is_due(self, waiting: int, now: float) -> bool:
        full = waiting >= self._limits.batch_events or any(lane.more for lane in self._ordinary)
        waited = self._waiting_since is not None and now >= self._waiting_since + self._delay_s
        return full or (waited and not self._ordinary_under_way)

    def _peek_ordinary(self) -> list[Waiting]:
        waiting: list[Waiting] = []
        for lane in self._ordinary:
            waiting += lane.peek(self._limits.batch_events - len(waiting))
            if lane.more:
                break  # a lower priority waits until this one is empty
        return waiting

    def _publish(self, waiting: Sequence[Waiting], now: float, *, urgent: bool) -> None:
        """Send as many of `waiting` as fit one payload."""
        payload, count = pack_first([each.json for each in waiting], self._limits.payload_bytes)
        mid = self._link.publish(self._topic, payload)
        deliveries = tuple(each.delivery for each in waiting[:count])
        self._under_way[mid] = _Publish(deliveries, now, urgent)
        self._ordinary_under_way += not urgent
        for delivery in deliveries:
            self._lanes[delivery.rank].take()

    def _overdue_at(self) -> float | None:
        oldest = next(iter(self._under_way.values()), None)
        return oldest.sent_at + self._limits.puback_timeout_s if oldest else None
