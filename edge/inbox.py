"""Deliver events to one on-device service: publish them to its inbox topic on the home's broker.

A delivery ends with the broker's PUBACK or, when the channel has `receipts`, with the service's own receipt.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import chain

from edge.delivery_queues import DeliveryQueues
from edge.numbering import text_for_service
from edge.settings import LocalSettings
from edge.spool import Delivery, PendingDelivery
from eventplane.contract import Channel, Priority
from eventplane.limits import URGENT_S
from eventplane.receipts import Receipt, digest
from eventplane.topics import local_topic
from eventplane_mqtt.reconnection import Link, ResendTimeout

_URGENT_SHARE = 10
"""One in so many deliveries of the window is kept free for urgent events."""

_MOST_DOUBLINGS = 5
"""How often the timeout doubles while nothing is confirmed; not beyond `URGENT_S` for an urgent event."""


class InboxPump:
    """Delivers one inbox `channel` over `link`, with as many unconfirmed deliveries as `settings` say.

    What is unconfirmed for their time (monotonic) is sent again, with everything that follows it; then for
    twice as long, and so on, until a delivery is confirmed or the connection is a new one.
    """

    def __init__(self, queues: DeliveryQueues, channel: Channel, link: Link, settings: LocalSettings) -> None:
        self.channel = channel
        self._link = link
        self._window = window = settings.inbox_window
        self._ordinary_window = window - window // _URGENT_SHARE
        self._timeout = ResendTimeout(settings.receipt_timeout_s, _MOST_DOUBLINGS)
        self._longest_urgent_s = max(settings.receipt_timeout_s, URGENT_S)
        self._topic = local_topic(channel.participant, channel.box)
        self._queues = queues
        self._by_rank = queues.open(channel.address)
        # What is not confirmed, when it was sent and its packet id, by that or, with receipts, by the
        # payload's digest, which several deliveries may share.
        self._sent: dict[Hashable, list[tuple[PendingDelivery, float, int]]] = {}

    def rewind(self) -> None:
        """Start again from the spool, because the connection is gone."""
        self._start_over()
        self._timeout.reset()
        self._queues.clear(self.channel.address)

    def acknowledged(self, mid: int) -> list[Delivery]:
        """Return the spool's deliveries that PUBACK `mid` ends; none when a receipt is required."""
        return self._queues.delivered(each.delivery for each in self._end(mid))

    def refused(self, mid: int) -> list[PendingDelivery]:
        """Return the deliveries that the broker will never take, of which `mid` is one."""
        found = (key for key, sent in self._sent.items() if any(each[2] == mid for each in sent))
        return self._end(next(found, mid))

    def receipted(self, receipt: Receipt) -> Sequence[PendingDelivery]:
        """Return the deliveries that the service's `receipt` ends: all in flight with these bytes."""
        return self._end(receipt.digest)

    def tick(self, now: float) -> None:
        """Send again when a confirmation is overdue."""
        if not self._link.is_dialling:
            self._queues.clear(self.channel.address)
        overdue = self.deadline()
        if overdue is not None and now >= overdue:
            self._timeout.double()
            self._start_over()

    def deadline(self) -> float | None:
        """Return when `tick` has something to do, None for never."""
        if not self._sent:
            return None
        (_, sent_at, _), *_ = next(iter(self._sent.values()))
        wait_s = self._timeout.seconds
        if wait_s > self._longest_urgent_s:
            in_flight = chain.from_iterable(self._sent.values())
            if any(pending.delivery.rank <= Priority.URGENT.rank for pending, *_ in in_flight):
                wait_s = self._longest_urgent_s
        return sent_at + wait_s

    def pump(self, now: float) -> None:
        """Send what the window allows, the most urgent first."""
        if not self._link.up:
            return
        for rank, queue in self._by_rank.items():
            if queue.empty:
                continue
            window = self._window if rank <= Priority.URGENT.rank else self._ordinary_window
            in_flight = sum(map(len, self._sent.values()))
            for pending in queue.peek(max(0, window - in_flight)):
                payload = text_for_service(pending, self._queues.spool.clock).encode("utf-8")
                mid = self._link.connection.publish(self._topic, payload)
                key = digest(payload) if self.channel.receipts else mid
                self._sent.setdefault(key, []).append((pending, now, mid))
                queue.take()

    def _start_over(self) -> None:
        self._sent.clear()
        for queue in self._by_rank.values():
            queue.rewind()

    def _end(self, key: Hashable) -> list[PendingDelivery]:
        ended = [pending for pending, *_ in self._sent.pop(key, ())]
        if ended:
            self._timeout.reset()
        return ended
