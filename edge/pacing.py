"""How fast the cloud's broker may be written to: budgets of publishes and of bytes for a second. Pure.

AWS IoT Core does not answer a publish beyond its quota, so the quota has to be kept from this side.
"""

from __future__ import annotations

from collections import deque

PUBLISHES_PER_S = 100
"""Publishes a second on one connection (AWS IoT Core quotas; accounts of today have more)."""

BYTES_PER_S = 512 * 1024
"""Bytes a second on one connection (AWS IoT Core quotas, throughput per connection)."""

URGENT_SHARE = 0.1
"""What ordinary publishes leave of each budget at any time, so that an urgent one finds room at once."""

_OVERHEAD_BYTES = 48
"""Of a publish beside its topic and payload: MQTT's header (at most 10) and the TLS record around it (29)."""

_TLS_RECORD_SHARE = 512
"""A payload of many TLS records of 16 KiB grows by 29 bytes each, less than one in so many."""

_PERIOD_S = 1.0
_LEAST_SHARE = 1 / 16
_RECOVERY_PER_S = 1 / 60
"""After the cloud's complaint the pace is halved, down to a sixteenth; it is whole again within a minute."""


def wire_size(topic: str, payload: bytes) -> int:
    """What a publish is worth in the budget of bytes."""
    return len(payload) + len(payload) // _TLS_RECORD_SHARE + len(topic) + _OVERHEAD_BYTES


class Bucket:
    """Tokens, each of which comes back a second after it was taken.

    So in no second more are taken than there are, and all of them are of use: a bucket that fills steadily
    would have to keep its burst out of its rate. What costs more than there are tokens goes when all are
    there, and keeps them for as many seconds as it is too large.
    """

    def __init__(self) -> None:
        self._taken: deque[tuple[float, int]] = deque()  # when they come back, and how many
        self._out = 0

    def ready_at(self, cost: int, now: float, room: float) -> float:
        """When `cost` tokens may be taken while at most `room` are out; `now` for at once."""
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
    """Both budgets, made smaller for a while when the cloud says that they are too large.

    Times are monotonic seconds. `slowed` counts the complaints.
    """

    def __init__(self, publishes_per_s: int, bytes_per_s: int) -> None:
        self.slowed = 0
        self._budgets = ((Bucket(), publishes_per_s), (Bucket(), bytes_per_s))
        self._share = 1.0
        self._slowed_at = 0.0

    def share(self, now: float) -> float:
        """What is used of the budgets, from 1/16 to 1."""
        return min(1.0, self._share + (now - self._slowed_at) * _RECOVERY_PER_S) if self.slowed else 1.0

    def ready_at(self, size: int, now: float, *, urgent: bool) -> float:
        """When a publish of `size` bytes may go; `now` for at once."""
        usable = self.share(now) * (1.0 if urgent else 1.0 - URGENT_SHARE)
        return max(
            bucket.ready_at(cost, now, usable * per_s)
            for (bucket, per_s), cost in zip(self._budgets, (1, size), strict=True)
        )

    def take(self, size: int, now: float) -> None:
        """A publish of `size` bytes goes."""
        share = self.share(now)
        for (bucket, per_s), cost in zip(self._budgets, (1, size), strict=True):
            bucket.take(cost, now, share * per_s)

    def slow_down(self, now: float) -> None:
        """The cloud complains. What it says within a second is one complaint."""
        if self.slowed and now < self._slowed_at + _PERIOD_S:
            return
        self._share = max(_LEAST_SHARE, self.share(now) / 2)
        self._slowed_at = now
        self.slowed += 1
