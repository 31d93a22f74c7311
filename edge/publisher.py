"""Sends for the uplink: paced publishes, and which of them the cloud's broker owes an answer."""

from __future__ import annotations

from edge.counts import Counts
from edge.in_flight import InFlight, Publish
from edge.link import Link
from edge.pacing import Pace, wire_size
from edge.spool import Delivery


class Publisher:
    """Publishes over `link` within `pace`, and counts it in `counts`. Times are monotonic seconds.

    `wake_at` is when there is something to do that could not be done before.
    """

    def __init__(self, link: Link, pace: Pace, counts: Counts) -> None:
        self.under_way = InFlight()
        self.pace = pace
        self.wake_at: float | None = None
        self._link = link
        self._counts = counts

    def may_go(self, size: int, now: float, *, urgent: bool) -> bool:
        """Whether the pace allows a publish of `size` now; otherwise it sees to being woken."""
        ready_at = self.pace.ready_at(size, now, urgent=urgent)
        if ready_at > now:
            self.wake(ready_at)
        return ready_at <= now

    def publish(
        self, topic: str, payload: bytes, deliveries: tuple[Delivery, ...], now: float, *, urgent: bool
    ) -> None:
        """Send; the caller has asked `may_go`."""
        size = wire_size(topic, payload)
        self.pace.take(size, now)
        mid = self._link.publish(topic, payload)
        if not mid:
            return  # the connection is over, as we shall hear: this publish proves nothing about an event
        self.under_way.add(mid, Publish(deliveries, size, now, urgent))
        self._counts.published += 1
        self._counts.published_events += len(deliveries)
        self._counts.published_bytes += len(payload)

    def ping(self, now: float) -> None:
        """Ask for an answer without publishing anything."""
        if mid := self._link.ping():
            self.under_way.add(mid, Publish((), 0, now, urgent=True))

    def answered(self, mid: int, *, accepted: bool) -> Publish | None:
        """What the broker's answer `mid` is about, None for an unknown one."""
        publish = self.under_way.pop(mid)
        if publish is not None and publish.size:  # a ping is no publish
            self._counts.answered += 1
            self._counts.acknowledged += accepted
        return publish

    def wake(self, at: float) -> None:
        """There is something to do at `at`, if not before."""
        self.wake_at = at if self.wake_at is None else min(self.wake_at, at)
