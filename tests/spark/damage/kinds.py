"""All kinds of damage by name."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.spark.damage import contents, coverage, decisions, frames, holes, reports, tampering
from tests.spark.damage.archive import Archive
from tests.spark.damage.expected import KINDS, Expected, all_of

_BY_MODULE: Final = {
    module: {
        name: getattr(change, "func", change)
        for name, change in KINDS.items()
        if getattr(change, "func", change).__module__ == module.__name__
    }
    for module in (coverage, contents, holes, decisions, frames, reports, tampering)
}

MEANINGS: Final = {
    name: (change.__doc__ or "").splitlines()[0]
    for changes in _BY_MODULE.values()
    for name, change in changes.items()
}
"""What each kind does, in one sentence."""

TAMPERING: Final = frozenset(_BY_MODULE[tampering])
"""Damage that an audit sees only if an audit before it has seen the archive undamaged."""


def damage(root: Path, names: Iterable[str]) -> Expected:
    """Damage the archive in `root` in each of these ways; returns what an audit must say of it."""
    archive = Archive(root)
    return all_of([KINDS[name](archive) for name in names])
