"""Finds the event at which the cloud's broker hangs up, and never takes an outage for one. Pure.

MQTT 3.1.1 knows no refusal of a publish: the broker just ends the connection, as any outage does. Three
connections in a row that end with the same publish unanswered raise the suspicion. From then on each
connection first has to prove itself with an acknowledged probe, then one publish goes alone, of half the
suspects; whether it is acknowledged or dropped halves them again. The last one left is convicted once five
connections in a row worked until it was sent and ended before anything else was. An outage convicts
nobody: it leaves the probe unanswered, or does not wait for that one event each time. A publish that gets
no answer at all proves nothing either way: lines that swallow large packets do that as well.
"""

from __future__ import annotations

from collections.abc import Sequence

from edge.in_flight import Publish
from edge.spool import Delivery

_DROPS = 3
_STRIKES = 5


class Suspicion:
    """Told of each acknowledged publish and of each connection's end; see the module."""

    def __init__(self) -> None:
        self.urgent = False
        """Whether the suspects are urgent events."""
        self._suspects = 0
        self._proved = False
        self._same: Delivery | None = None
        self._times = 0

    @property
    def size(self) -> int | None:
        """How many events the next publish may have, which goes alone; None while nobody is suspected."""
        return max(1, self._suspects // 2) if self._suspects else None

    @property
    def needs_proof(self) -> bool:
        """Whether a probe must be acknowledged on this connection before anything else is sent."""
        return bool(self._suspects) and not self._proved

    def acknowledged(self, publish: Publish) -> None:
        """The connection works, and these events are innocent."""
        self._proved = True
        if self._same in publish.deliveries:
            self._same = None  # what comes after this is no longer in a row
        if self._suspects and publish.urgent == self.urgent:
            self._suspects = max(0, self._suspects - len(publish.deliveries))

    def restarted(self) -> None:
        """The connection ended by our own decision."""
        self._proved = False

    def dropped(self, unanswered: Sequence[Publish]) -> Delivery | None:
        """The connection ended from the other side with these publishes under way; who is convicted."""
        proved, self._proved = self._proved, False
        first = next((each for each in unanswered if each.deliveries), None)
        if first is None:
            return None
        if not self._suspects:
            if self._count(first.deliveries[0]) >= _DROPS:
                self._suspect(first)
        elif first.urgent and not self.urgent:
            self._suspect(first)  # urgent events do not wait for the trial of others
        elif proved and len(unanswered) == 1:
            self._suspects = len(first.deliveries)
            if self._suspects == 1 and self._count(first.deliveries[0]) >= _STRIKES:
                self._suspects = self._times = 0
                return first.deliveries[0]
        return None

    def _suspect(self, publish: Publish) -> None:
        self._suspects = len(publish.deliveries)
        self.urgent = publish.urgent
        self._times = 0

    def _count(self, delivery: Delivery) -> int:
        """How often in a row it was this one."""
        self._times = self._times + 1 if delivery == self._same else 1
        self._same = delivery
        return self._times
