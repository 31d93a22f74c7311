"""Bound what is in flight on a connection to what its line carries in a round trip, by its answers. Pure.

That product of bandwidth and delay is BBR's (Cardwell et al., 2016): a line with so much in flight is never
idle, and what is urgent waits behind about one round trip. All times are monotonic seconds.
"""

from __future__ import annotations

from typing import NamedTuple

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


class Sent(NamedTuple):
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

    def sent(self, now: float, in_flight: int, *, idle: bool) -> Sent:
        """Note a publish, with which `in_flight` ordinary bytes are; return what to keep until its answer."""
        if idle:
            self._delivered_at = now
        fills = in_flight >= self.size
        self._filled |= fills
        return Sent(self._delivered, self._delivered_at, fills)

    def acknowledged(self, size: int, sent_at: float, before: Sent, now: float) -> None:
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
