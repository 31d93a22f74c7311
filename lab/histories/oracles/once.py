"""A reader handles each event once, and knows what it has acknowledged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lab.histories.oracles.finding import OracleFinding

if TYPE_CHECKING:
    from lab.histories.history import History


def judged(history: History) -> Iterator[OracleFinding]:
    """Look at each event that a reader in the cloud handled."""
    for key, times in history.handled.done.items():
        if len(times) > 1:
            yield OracleFinding("handled twice", f"{key} at {times}")
    for key in history.handled.doubted:
        yield OracleFinding("in doubt after it was settled", f"{key}")
