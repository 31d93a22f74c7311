"""When the service manager's watchdog is fed: only while the line really moves.

It is fed from the loop's thread between two turns, so a loop that hangs feeds nothing. Beyond that the line
is stuck when something waits for the cloud, one and the same connection stands, and nothing was answered, all
of it for longer than the uplink itself can take. The uplink cuts a connection whose PUBACK is overdue, so it
never comes from a bad network or a silent cloud: then the connection changes. One that refuses for want of
quota answers. It comes from our own bug, and that is what a restart mends.

A commit that fails needs no rule here: a spool that fails ends the process (exit status 74), and a spool that
is full refuses, which no restart would mend.
"""

from __future__ import annotations

from typing import NamedTuple


class Progress(NamedTuple):
    """What the watchdog looks at: the cloud's connection (0: none), its answers to publishes, what waits."""

    connection: int
    answered: int
    waiting: int


class Watchdog:
    """Fed every `interval_s` monotonic seconds; None: nobody asks."""

    def __init__(self, interval_s: float | None, now: float) -> None:
        self._interval_s = interval_s
        self._next = now
        self._last = Progress(0, 0, 0)
        self._still_since = now

    def deadline(self) -> float | None:
        """When it is due to be fed, None for never."""
        return None if self._interval_s is None else self._next

    def is_due(self, now: float) -> bool:
        """Whether it is time; says so once an interval."""
        if self._interval_s is None or now < self._next:
            return False
        self._next = now + self._interval_s
        return True

    def complaint(self, seen: Progress, now: float, patience_s: float) -> str | None:
        """Why it must not be fed, None when the line moves or has nothing to move."""
        moved = (seen.connection, seen.answered) != (self._last.connection, self._last.answered)
        if moved or not seen.connection or not seen.waiting or not self._last.waiting:
            self._still_since = now
        self._last = seen
        still_s = now - self._still_since
        if still_s < patience_s:
            return None
        return (
            f"{seen.waiting} deliveries wait and the connected cloud answered no publish for {still_s:.0f} s"
        )
