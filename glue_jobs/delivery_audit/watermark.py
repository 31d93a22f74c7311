"""Until when the archive counts as complete. What was accepted later is pending, not lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

LATENESS_S = 3_600
"""How long after its acceptance an event's record may take to the archive before it is missed, seconds. Ours:
four of the longest waits (15 min) between two attempts of a router."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """An audit of the archive as it was `as_of_ms` (Unix milliseconds), which waits for `lateness_s`.

    It follows the clock of whoever audits, not the newest row: a router that has stopped writes no row that
    would ever close the window in which it stopped.
    """

    as_of_ms: int
    lateness_s: int = LATENESS_S

    @property
    def ms(self) -> int:
        """The watermark, Unix milliseconds."""
        return self.as_of_ms - 1_000 * self.lateness_s

    def as_dict(self) -> dict[str, Any]:
        """For the report."""
        return {"as_of_ms": self.as_of_ms, "lateness_s": self.lateness_s, "watermark_ms": self.ms}
