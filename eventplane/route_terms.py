"""The covers of a filter: the terms under which an index may file it."""

from __future__ import annotations

from collections.abc import Iterator

from eventplane.filters import All, Any, Exact, Filter, Prefix, Sql, Suffix
from eventplane.terms import Cover, either


def covers(filter: Filter) -> Iterator[Cover]:
    """Every cover that `filter` shows without being solved; none for `not`."""
    match filter:
        case Exact() | Prefix() | Suffix():
            yield frozenset((filter,))
        case All():
            for each in filter.filters:
                yield from covers(each)
        case Any():
            yield from either(covers(each) for each in filter.filters)
        case Sql():
            # Whoever holds an expression has loaded the language; all others need not.
            from eventplane.cesql.implied import implied

            yield from implied(filter.expression.tree)


def residual(filter: Filter, cover: Cover) -> Filter | None:
    """What is left to ask of an event for which a term of `cover` holds; None: nothing."""
    match filter:
        case Exact() | Prefix() | Suffix():
            return None
        case Any() if cover.issuperset(filter.filters):  # nothing but terms, and all of them looked up
            return None
        case All() if len(cover) == 1:
            rest = tuple(each for each in filter.filters if each not in cover)
            if len(rest) < 2:
                return rest[0] if rest else None
            return All(rest)
        case _:
            return filter
