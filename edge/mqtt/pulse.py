"""MQTT's keepalive: when to send PINGREQ, and when to give up."""

from __future__ import annotations


class Pulse:
    """Times are seconds of one monotonic clock; `interval_s` 0 means no keepalive."""

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self._sent_at = 0.0
        self._heard_at = 0.0
        self._asked = False

    def sent(self, now: float) -> None:
        """Bytes went out."""
        self._sent_at = now

    def heard(self, now: float) -> None:
        """Bytes came in: a broker that is busy sending lives, though its PINGRESP has to queue up."""
        self._heard_at = now

    def answered(self) -> None:
        """PINGRESP came."""
        self._asked = False

    def deadline(self) -> float | None:
        """When `ask` or `given_up` turns true, None for never."""
        if not self.interval_s:
            return None
        return (self._heard_at if self._asked else self._sent_at) + self.interval_s

    def ask(self, now: float) -> bool:
        """Whether PINGREQ is to be sent now; it then counts as sent."""
        if self._asked or not self._is_due(now):
            return False
        self._asked = True
        self._heard_at = now  # its answer has the full interval
        return True

    def given_up(self, now: float) -> bool:
        """Whether PINGREQ was sent and nothing at all was heard since."""
        return self._asked and self._is_due(now)

    def _is_due(self, now: float) -> bool:
        deadline = self.deadline()
        return deadline is not None and now >= deadline
