"""Find the event at which the cloud's broker ends the connection, and never mistake an outage for it. Pure.

MQTT 3.1.1 has no refusal of a publish: the broker just ends the connection, as any outage does. Three
connections in a row that end with the same publish unanswered make its events suspects. From then on each
connection first has to acknowledge a probe, then one publish of half the suspects goes alone; whether it is
acknowledged or dropped halves them again. Urgent events wait for that only if the suspects are urgent. The
last suspect is poison once five connections in a row worked until it was sent and ended before anything else
was sent. An outage cannot lead to that: it leaves the probe unanswered, or does not coincide with that one
event each time. A publish without any answer proves nothing: connections that swallow large packets cause
that as well.
"""

from __future__ import annotations

from collections.abc import Sequence

from edge.publishing import InFlight
from edge.spool import Delivery

_DROPS = 3
_STRIKES = 5


class PoisonDetector:
    """Judges by each acknowledged publish and each connection's end; see the module."""

    def __init__(self) -> None:
        self.urgent = False
        """Whether the suspects are urgent events."""
        self._suspects = 0
        self._proved = False
        self._same: Delivery | None = None
        self._times = 0

    @property
    def size(self) -> int | None:
        """Most events of the next publish, which goes alone; None while there are no suspects."""
        return max(1, self._suspects // 2) if self._suspects else None

    @property
    def needs_proof(self) -> bool:
        """True if a probe must be acknowledged on this connection before anything else is sent."""
        return bool(self._suspects) and not self._proved

    def acknowledged(self, publish: InFlight) -> None:
        """Note that the topic of `publish` works and its events are not poison."""
        has_their_topic = publish.urgent == self.urgent
        if has_their_topic or not publish.deliveries:  # a probe goes where the suspects go
            self._proved = True
        if self._same in publish.deliveries:
            self._same = None  # the row ends here
        if self._suspects and has_their_topic:
            self._suspects = max(0, self._suspects - len(publish.deliveries))

    def clear(self) -> None:
        """Note that the suspects ended without an answer of the broker: they expired."""
        self._suspects = 0
        self.urgent = False

    def restarted(self) -> None:
        """Note that this side ended the connection."""
        self._proved = False

    def dropped(self, unanswered: Sequence[InFlight]) -> Delivery | None:
        """Note that the other side ended the connection; return the poison event if this proves one."""
        proved, self._proved = self._proved, False
        first = next((each for each in unanswered if each.deliveries), None)
        if first is None:
            return None
        if not self._suspects:
            if self._count(first.deliveries[0]) >= _DROPS:
                self._suspect(first)
        elif first.urgent and not self.urgent:
            self._suspect(first)  # urgent events do not wait until others are cleared
        elif proved and len(unanswered) == 1:
            self._suspects = len(first.deliveries)
            if self._suspects == 1 and self._count(first.deliveries[0]) >= _STRIKES:
                self._suspects = self._times = 0
                return first.deliveries[0]
        return None

    def _suspect(self, publish: InFlight) -> None:
        self._suspects = len(publish.deliveries)
        self.urgent = publish.urgent
        self._times = 0

    def _count(self, delivery: Delivery) -> int:
        """Return how often in a row it was this delivery."""
        self._times = self._times + 1 if delivery == self._same else 1
        self._same = delivery
        return self._times
