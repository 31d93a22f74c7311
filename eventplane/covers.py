"""Covers: comparisons that hold for every event that a filter matches, by which an index finds its route."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from eventplane.filters import Exact, Prefix, Term

Cover = frozenset[Term]
"""Terms of a filter, one of which is true for every event that the filter matches.

A filter has several covers (one for each condition of an `all`), or none: then it is evaluated for every
event.
"""


def present(attribute: str) -> Term:
    """Return the weakest term: the event has the attribute."""
    return Prefix(attribute, "")


def weakness(cover: Cover) -> tuple[int, int, int]:
    """Return the key to sort covers by, the most selective first, without knowing the other routes."""
    shortest = min((len(term.value) for term in cover), default=0)
    return max(map(_kind, cover), default=0), len(cover), -shortest


def either(sides: Iterable[Iterable[Cover]]) -> Iterator[Cover]:
    """Yield the cover, if there is one, of a filter that matches where at least one of its `sides` does."""
    union: set[Term] = set()
    for covers in sides:
        best = min(covers, key=weakness, default=None)
        if best is None:
            return
        union |= best
    yield frozenset(union)


def _kind(term: Term) -> int:
    if isinstance(term, Exact):
        return 0
    return 1 if term.value else 2
