"""The way to one on-device service: its inbox topic on the home's broker. Needs no cloud.

A delivery ends with the broker's PUBACK or, when the channel has `receipts`, with the service's own receipt.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from edge.link import Link
from edge.outgoing import Outgoing
from edge.spool import Delivery, Waiting
from eventplane.contract import Channel, Priority
from eventplane.receipts import Receipt, digest
from eventplane.topics import local_topic

_URGENT_SHARE = 10
"""One in so many deliveries of the window is kept free for urgent events."""

_MOST_DOUBLINGS = 5
"""How often the timeout doubles while nothing is confirmed. The broker keeps what we send for a service that
is away, so a copy every few seconds would bury it when it comes back."""


@dataclass(frozen=True, slots=True)
class _UnderWay:
    waiting: Waiting
    sent_at: float


class InboxPump:
    """Carries one inbox `channel` over `link`, at most `window` deliveries unconfirmed.

    What is unconfirmed for `timeout_s` monotonic seconds is sent again, with all that follows it; then for
    twice as long, and so on, until something is confirmed.
    """

    def __init__(
        self, outgoing: Outgoing, channel: Channel, link: Link, window: int, timeout_s: float
    ) -> None:
        self.channel = channel
        self._link = link
        self._window = window
        self._ordinary_window = window - window // _URGENT_SHARE
        self._timeout_s = timeout_s
        self._topic = local_topic(channel.participant, channel.box)
        self._outgoing = outgoing
        self._lanes = outgoing.lanes(channel.address)
        # By packet id or, with receipts, by the payload's digest.
        self._under_way: dict[Hashable, _UnderWay] = {}
        self._repetitions = 0

    def rewind(self) -> None:
        """The connection is gone: all that the spool still holds is to be sent over the next one."""
        self._start_over()
        self._outgoing.clear(self.channel.address)

    def acknowledged(self, mid: int) -> list[Delivery]:
        """The spool's deliveries that the broker's PUBACK ends; none when it takes a receipt."""
        ended = self._end(mid)
        return self._outgoing.delivered([ended.delivery]) if ended else []

    def receipted(self, receipt: Receipt) -> Waiting | None:
        """The delivery that the service's `receipt` ends, None for an unknown one."""
        return self._end(receipt.digest)

    def tick(self, now: float) -> None:
        """Send again when a confirmation is overdue."""
        overdue = self.deadline()
        if overdue is not None and now >= overdue:
            self._repetitions += 1
            self._start_over()

    def deadline(self) -> float | None:
        """When `tick` has something to do, None for never."""
        oldest = next(iter(self._under_way.values()), None)
        patience_s = self._timeout_s * 2.0 ** min(self._repetitions, _MOST_DOUBLINGS)
        return oldest.sent_at + patience_s if oldest else None

    def pump(self, now: float) -> None:
        """Send what may be sent, the most urgent first."""
        if not self._link.up:
            return
        for rank, lane in self._lanes.items():
            room = self._window if rank <= Priority.URGENT.rank else self._ordinary_window
            for waiting in lane.peek(max(0, room - len(self._under_way))):
                payload = waiting.json.encode("utf-8")
                mid = self._link.publish(self._topic, payload)
                key = digest(payload) if self.channel.receipts else mid
                self._under_way[key] = _UnderWay(waiting, now)
                lane.take()

    def _start_over(self) -> None:
        self._under_way.clear()
        for lane in self._lanes.values():
            lane.rewind()

    def _end(self, key: Hashable) -> Waiting | None:
        ended = self._under_way.pop(key, None)
        if ended is None:
            return None
        self._repetitions = 0
        return ended.waiting
