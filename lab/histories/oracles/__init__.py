"""Check the promises of a history, a module for each promise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.histories.oracles import (
    accounted,
    audited,
    bounded,
    delivered,
    down,
    in_order,
    kept,
    keys,
    late,
    noticed,
    posted,
    replayed,
    subscribed,
)
from lab.histories.oracles.finding import OracleFinding

if TYPE_CHECKING:
    from lab.histories.history import History

__all__ = ["OracleFinding", "judged"]

_ALL = (
    *(delivered, in_order, kept, down, late, noticed, bounded, subscribed, posted, replayed),
    *(audited, accounted, keys),
)


def judged(history: History) -> list[OracleFinding]:
    """Return what is wrong with a history that has ended, each finding once and in order."""
    return sorted({finding for each in _ALL for finding in each.judged(history)})
