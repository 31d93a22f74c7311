"""Terms: what an index can look up. And covers: what of it must hold before a filter can match.

A cover of a filter is a set of terms of which at least one holds for every event that the filter matches. A
filter has several covers (one for each condition joined by `all`), or none (it has to be asked each time).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from eventplane.filters import Exact, Prefix, Suffix

Term = Exact | Prefix | Suffix
Cover = frozenset[Term]


def present(attribute: str) -> Term:
    """The weakest term: the event has the attribute."""
    return Prefix(attribute, "")


def weakness(cover: Cover) -> tuple[int, int, int]:
    """What to sort covers by, the most selective first, when nothing is known of the other routes."""
    shortest = min((len(term.value) for term in cover), default=0)
    return max(map(_kind, cover), default=0), len(cover), -shortest


def either(sides: Iterable[Iterable[Cover]]) -> Iterator[Cover]:
    """The cover, if there is one, of something that matches where at least one of its `sides` does."""
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
