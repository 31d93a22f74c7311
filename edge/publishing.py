"""Publish to the cloud's broker within its quota and what the line carries, and track what is unacknowledged.

AWS IoT Core does not answer a publish beyond its quota, so `Pace` keeps the quota from this side.
`CongestionWindow` bounds what is in flight to what the line carries in a round trip, by its answers. That
product of bandwidth and delay is BBR's (Cardwell et al., 2016): a line with so much in flight is never idle,
and what is urgent waits behind about one round trip. All times are monotonic seconds.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from edge.counts import Counts
from edge.spool import Delivery
from eventplane_mqtt.reconnection import Link

if TYPE_CHECKING:
    from edge.data_budget import DataBudget

LEAST_BYTES = 1_024
"""The first window of a connection, and the smallest. Ours: a second of the slowest line that is worth
anything (1 kB/s), and large enough that the bytes around a payload (about 100) are few."""

_LEAST_DELAY_S = 0.5
"""The delay that is assumed at least. Ours: in that time a line at the cloud's quota carries more than the
largest payload, so that a fast line packs as if there was no window."""

_STALE_S = 60.0
"""How long a round trip counts while the line is full: then it is measured again, on an empty line."""

_AROUND = 9 / 8
"""How much a small publish of `size` takes with what is around its payload."""

_GROWING = 1.25
_GAIN = 1.5
"""A line that carries so much more than the window is tried with so much more than it proved, up to twice the
window, as in TCP's slow start."""

_DAMPING = 4
"""Smaller changes count for one in so many: an answer may be early or late by chance."""


class SentPublish(NamedTuple):
    """When a publish was sent: the bytes `delivered` by `since`, and whether it `fills` the window."""

    delivered: int = 0
    since: float = 0.0
    fills: bool = False


class CongestionWindow:
    """The window of one connection, `size` bytes up to `most`; `reset` begins another connection.

    A connection knows nothing of the one before: it may be another line, and the line that swallowed a large
    publish gets a small one. A window that was not full proves nothing against the line, so it never shrinks.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.reset()

    def reset(self) -> None:
        """Begin a new connection."""
        self.size = min(LEAST_BYTES, self._most)
        self._delivered = 0
        self._delivered_at = 0.0
        self._round_trip_s: float | None = None
        self._measured_at: float | None = None
        self._filled = False

    def has_room(self, in_flight: int) -> bool:
        """Return whether more may go while so many bytes of a kind are in flight."""
        return in_flight < min(self._most, self.size * _AROUND)

    def measures(self, now: float, in_flight: int) -> bool:
        """Return whether to measure the round trip now: again only without ordinary bytes `in_flight`."""
        return self._measured_at is None or (not in_flight and self.is_stale(now))

    def is_stale(self, now: float) -> bool:
        """Return whether the round trip was measured long ago and the window has been full since."""
        return self._measured_at is not None and self._filled and now >= self._measured_at + _STALE_S

    def measuring(self, now: float) -> None:
        """Note that a packet without a payload is on its way."""
        self._measured_at = now
        self._filled = False

    def measured(self, round_trip_s: float) -> None:
        """Note the time to its answer."""
        self._round_trip_s = round_trip_s

    def sent(self, now: float, in_flight: int, *, idle: bool) -> SentPublish:
        """Note a publish, with which `in_flight` ordinary bytes are; return what to keep until its answer."""
        if idle:
            self._delivered_at = now
        fills = in_flight >= self.size
        self._filled |= fills
        return SentPublish(self._delivered, self._delivered_at, fills)

    def acknowledged(self, size: int, sent_at: float, before: SentPublish, now: float) -> None:
        """Note the answer to a publish of `size` bytes, and adapt the window."""
        self._delivered += size
        self._delivered_at = now
        # Its own bytes take time too: an upper bound, for a connection that cannot be asked otherwise.
        took_s = now - sent_at
        self._round_trip_s = took_s if self._round_trip_s is None else min(took_s, self._round_trip_s)
        rate = (self._delivered - before.delivered) / max(now - before.since, 0.001)
        found = rate * max(self._round_trip_s, _LEAST_DELAY_S)
        if found > self.size * _GROWING:
            found = max(found, min(found * _GAIN, self.size * 2.0))
        elif found > self.size or before.fills:
            found = self.size + (found - self.size) / _DAMPING
        else:
            found = self.size
        self.size = round(min(self._most, max(LEAST_BYTES, found)))


URGENT_SHARE = 0.1
"""What ordinary publishes leave of each budget at any time, so that an urgent one finds room at once."""

_OVERHEAD_BYTES = 48
"""Of a publish beside its topic and payload: MQTT's header (at most 10) and the TLS record around it (29)."""

_TLS_RECORD_SHARE = 512
"""A payload of many TLS records of 16 KiB grows by 29 bytes each, less than one in so many."""

_PERIOD_S = 1.0
_LEAST_SHARE = 1 / 16
_RECOVERY_PER_S = 1 / 60
"""The cloud's complaint halves the pace, down to a sixteenth; it is whole again within a minute."""

_LOOKS = 4
"""So often within a timeout it is looked whether bytes move that the kernel holds."""


def wire_size(topic: str, payload: bytes) -> int:
    """Return the bytes that a publish takes from the budget."""
    return len(payload) + len(payload) // _TLS_RECORD_SHARE + len(topic) + _OVERHEAD_BYTES


class Bucket:
    """Tokens, each of which comes back a second after it was taken.

    So no second sees more than the budget, and all of it can be used: a bucket that fills steadily would have
    to keep its burst out of its rate. What costs more than the budget goes when all tokens are there, and
    keeps them for as many seconds as it is too large.
    """

    def __init__(self) -> None:
        self._taken: deque[tuple[float, int]] = deque()  # when they come back, and how many
        self._out = 0

    def ready_at(self, cost: int, now: float, room: float) -> float:
        """Return when `cost` tokens may be taken while at most `room` are out; `now` for at once."""
        while self._taken and self._taken[0][0] <= now:
            self._out -= self._taken.popleft()[1]
        left = room - self._out
        at = now
        for back_at, tokens in self._taken:
            if cost <= left:
                break
            left += tokens
            at = back_at
        return at

    def take(self, cost: int, now: float, tokens: float) -> None:
        """Take `cost` of `tokens`; the caller has asked `ready_at`."""
        back_at = now + _PERIOD_S * max(1.0, cost / tokens)
        latest = self._taken[-1][0] if self._taken else back_at
        self._taken.append((max(back_at, latest), cost))
        self._out += cost


class Pace:
    """The budgets of a second, made smaller for a while when the cloud complains, and that of a `day`.

    Times are monotonic seconds. `slowed` counts the complaints.
    """

    def __init__(self, publishes_per_s: int, bytes_per_s: int, day: DataBudget | None = None) -> None:
        self.slowed = 0
        self._day = day
        self._budgets = ((Bucket(), publishes_per_s), (Bucket(), bytes_per_s))
        self._share = 1.0
        self._slowed_at = 0.0

    def share(self, now: float) -> float:
        """Return the usable share of the budgets, from 1/16 to 1."""
        return min(1.0, self._share + (now - self._slowed_at) * _RECOVERY_PER_S) if self.slowed else 1.0

    def ready_at(self, size: int, now: float, *, urgent: bool) -> float:
        """Return when a publish of `size` bytes may go; `now` for at once."""
        usable = self.share(now) * (1.0 if urgent else 1.0 - URGENT_SHARE)
        affordable_at = now if urgent or self._day is None else now + self._day.wait_s(size)
        return max(
            affordable_at,
            *(
                bucket.ready_at(cost, now, usable * per_s)
                for (bucket, per_s), cost in zip(self._budgets, (1, size), strict=True)
            ),
        )

    def take(self, size: int, now: float) -> None:
        """Charge a publish of `size` bytes to the budgets."""
        share = self.share(now)
        for (bucket, per_s), cost in zip(self._budgets, (1, size), strict=True):
            bucket.take(cost, now, share * per_s)
        if self._day is not None:
            self._day.take(size)

    def slow_down(self, now: float) -> None:
        """Halve the pace; complaints within one second count as one."""
        if self.slowed and now < self._slowed_at + _PERIOD_S:
            return
        self._share = max(_LEAST_SHARE, self.share(now) / 2)
        self._slowed_at = now
        self.slowed += 1


@dataclass(slots=True)
class InFlight:
    """An unacknowledged publish; a probe has no `deliveries`, and if it is a ping no `size`.

    `size` in bytes, `sent_at` in monotonic seconds. Its last byte is number `end` of the connection.
    """

    deliveries: tuple[Delivery, ...]
    size: int
    sent_at: float
    urgent: bool
    end: int
    before: SentPublish
    has_left: bool = False


class Publisher:
    """Publishes over `link` within `pace` and `window`, counts in `counts`, and keeps what is unacknowledged.

    Times are monotonic seconds. `wake_at` is when something can be done that has to wait until then;
    `in_flight` has the unacknowledged publishes by packet id, the oldest first.
    `moving` has the number of the oldest publish's bytes that had left at the last look, and when they left.
    """

    def __init__(self, link: Link, pace: Pace, window: CongestionWindow, counts: Counts) -> None:
        self.pace = pace
        self.window = window
        self.wake_at: float | None = None
        self.moving = (0, 0.0)
        self._looked_at = 0.0
        self._link = link
        self._counts = counts
        self.in_flight: dict[int, InFlight] = {}
        self._measuring = (0, 0.0)

    def __len__(self) -> int:
        return len(self.in_flight)

    @property
    def oldest(self) -> InFlight | None:
        """The unacknowledged publish that was sent first."""
        return next(iter(self.in_flight.values()), None)

    def bytes_in_flight(self, *, urgent: bool) -> int:
        """Return the size of the unacknowledged publishes that are urgent, or of the others."""
        return sum(each.size for each in self.in_flight.values() if each.urgent is urgent)

    def has_room(self, most: int, *, urgent: bool) -> bool:
        """Return whether another publish may be in flight: of `most`, and of each kind the window's bytes."""
        return len(self) < most and self.window.has_room(self.bytes_in_flight(urgent=urgent))

    def look(self, now: float) -> None:
        """See whether the oldest publish has left, and whether its bytes move."""
        oldest = self.oldest
        if oldest is None or oldest.has_left or not self._link.up:
            return
        sending = self._link.connection.sending(now)
        self._looked_at = now
        self.moving = (min(sending.left, oldest.end), max(oldest.sent_at, sending.moved_at))
        oldest.has_left = sending.left >= oldest.end

    def overdue(self, timeout_s: float, now: float) -> InFlight | None:
        """Return the oldest if it has waited so long since its last byte left, or since its bytes moved."""
        self.look(now)
        return self.oldest if now >= self.moving[1] + timeout_s else None

    def deadline(self, timeout_s: float) -> float | None:
        """Return when to look again, None for never."""
        if (oldest := self.oldest) is None:
            return None
        overdue_at = self.moving[1] + timeout_s
        return overdue_at if oldest.has_left else min(overdue_at, self._looked_at + timeout_s / _LOOKS)

    def may_go(self, size: int, now: float, *, urgent: bool) -> bool:
        """Return whether the pace allows a publish of `size` now; if not, set `wake_at`."""
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
        connection = self._link.connection
        mid = connection.publish(topic, payload)
        if not mid:
            return  # the connection is over, which is reported soon: this proves nothing about an event
        ordinary = self.bytes_in_flight(urgent=False) + (0 if urgent else size)
        before = self.window.sent(now, ordinary, idle=not self.in_flight)
        # What the connection's thread queued since counts along: the publish left a little earlier then.
        end = connection.queued_bytes
        self.in_flight[mid] = InFlight(deliveries, size, now, urgent, end, before)
        self._counts.published += 1
        self._counts.published_events += len(deliveries)
        self._counts.published_bytes += len(payload)

    def ping(self, now: float) -> None:
        """Request an answer without publishing anything."""
        connection = self._link.connection
        if mid := connection.ping():
            end = connection.queued_bytes
            self.in_flight[mid] = InFlight((), 0, now, urgent=True, end=end, before=SentPublish())

    def measure(self, now: float) -> None:
        """Measure the connection's round trip; the answer is no publish's."""
        self._measuring = (self._link.connection.ping(), now)
        self.window.measuring(now)

    def answered(self, mid: int, now: float, *, accepted: bool) -> InFlight | None:
        """Remove and return the publish that the broker answered, None for an unknown one."""
        publish = self.in_flight.pop(mid, None)
        if publish is None:
            if mid == self._measuring[0]:
                self.window.measured(now - self._measuring[1])
            return None
        if publish.size:  # a ping is no publish
            self.window.acknowledged(publish.size, publish.sent_at, publish.before, now)
            self._counts.answered += 1
            self._counts.acknowledged += accepted
        return publish

    def forget(self) -> None:
        """Forget the unacknowledged publishes, because their connection is gone."""
        self.in_flight.clear()
        self._measuring = self.moving = (0, 0.0)
        self.window.reset()

    def wake(self, at: float) -> None:
        """Make sure that `wake_at` is not later than `at`."""
        self.wake_at = at if self.wake_at is None else min(self.wake_at, at)


class Remedy(Enum):
    """The remedy for a refused publish (MQTT 5.0, section 3.4.2.1)."""

    SLOW_DOWN = auto()
    """Send it again, less often: the quota is used up."""

    SPLIT = auto()
    """Never send it again as it is: the broker cannot take something in the payload."""

    CONFIGURE = auto()
    """Nothing on this side: the topic is the same for all, so the device's policy or settings are wrong."""

    RECONNECT = auto()
    """Try again on another connection: the broker does not say whether it or the payload is the cause."""


_REMEDIES = {
    "quota exceeded": Remedy.SLOW_DOWN,
    "payload format invalid": Remedy.SPLIT,
    "packet too large": Remedy.SPLIT,
    "not authorized": Remedy.CONFIGURE,
    "topic name invalid": Remedy.CONFIGURE,
}


def remedy(failure: str) -> Remedy:
    """Return the remedy for a failure by the name that MQTT gives its reason code."""
    text = failure.lower()
    return next((each for name, each in _REMEDIES.items() if name in text), Remedy.RECONNECT)
