"""A clock that a test sets."""

from __future__ import annotations

from dataclasses import dataclass

START_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""


@dataclass
class FakeClock:
    """Called, it gives `now_ms`, Unix milliseconds; time passes only by `advance`."""

    now_ms: int = START_MS

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, seconds: float) -> None:
        self.now_ms += round(1_000 * seconds)
