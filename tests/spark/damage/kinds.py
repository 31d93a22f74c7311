"""All kinds of damage by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from tests.spark.damage import coverage, decisions, holes, tampering
from tests.spark.damage.archive import Archive
from tests.spark.damage.expected import Expected, all_of

KINDS: Final[dict[str, Callable[[Archive], Expected]]] = {
    **coverage.KINDS,
    **holes.KINDS,
    **decisions.KINDS,
    **tampering.KINDS,
}

MEANINGS: Final = {
    name: (getattr(change, "func", change).__doc__ or "").splitlines()[0] for name, change in KINDS.items()
}
"""What each kind does, in one sentence."""

TAMPERING: Final = frozenset(tampering.KINDS)
"""Damage that an audit sees only if an audit before it has seen the archive undamaged."""


def damage(root: Path, names: Iterable[str]) -> Expected:
    """Damage the archive in `root` in each of these ways; returns what an audit must say of it."""
    archive = Archive(root)
    return all_of([KINDS[name](archive) for name in names])
