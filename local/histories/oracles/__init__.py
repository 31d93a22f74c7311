"""What must hold of every history, a module for each promise. `judged` asks them all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from local.histories.oracles import audited, bounded, delivered, down, late, once, posted, subscribed
from local.histories.oracles.finding import Finding

if TYPE_CHECKING:
    from local.histories.history import History

__all__ = ["Finding", "judged"]

_ALL = (delivered, once, down, late, bounded, subscribed, posted, audited)


def judged(history: History) -> Iterator[Finding]:
    """What is wrong with a history that has ended."""
    for each in _ALL:
        yield from each.judged(history)
