"""The routes of a router, filed so that an event meets only those that it may match.

Each route is filed under its rarest cover: what it has alone decides more than what it shares with many.
An event's attributes are looked up, and what was found is asked for the rest of its condition. The answer is
that of asking every route; a property test holds the two together.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from eventplane.attributes import attribute_text
from eventplane.contract import Route
from eventplane.filters import (
    All,
    Any,
    Attributes,
    Cover,
    Exact,
    Filter,
    Prefix,
    Sql,
    Suffix,
    Term,
    either,
    weakness,
)


class RouteIndex:
    """`routes` by their most selective terms."""

    __slots__ = ("_always", "_attributes", "_entries")

    def __init__(self, routes: Sequence[Route]) -> None:
        choices = [tuple(covers(route.filter)) for route in routes]
        shared = Counter(term for choice in choices for cover in choice for term in cover)

        def rarity(cover: Cover) -> tuple[bool, int, tuple[int, int, int]]:
            by_presence = any(not term.value for term in cover)
            return by_presence, sum(shared[term] for term in cover), weakness(cover)

        self._always: list[int] = []
        self._entries: list[tuple[Route, Callable[[Attributes], bool] | None]] = []
        filed: dict[str, dict[Term, list[int]]] = defaultdict(lambda: defaultdict(list))
        for at, (route, choice) in enumerate(zip(routes, choices, strict=True)):
            cover = min(choice, key=rarity, default=None)
            rest = route.filter if cover is None else residual(route.filter, cover)
            self._entries.append((route, rest.matches if rest else None))
            if cover is None:
                self._always.append(at)
                continue
            for term in cover:
                filed[term.attribute][term].append(at)
        self._attributes = [(name, _AttributeIndex(terms)) for name, terms in filed.items()]

    def matching(self, attributes: Attributes) -> tuple[Route, ...]:
        """The routes that match, in the order in which they were given."""
        found = self._always.copy()
        for name, index in self._attributes:
            held = attributes.get(name)
            if held is not None:
                index.find(held if held.__class__ is str else attribute_text(held), found)
        if len(found) > 1:
            # A route may be filed under several terms.
            found = sorted(set(found))
        candidates = [self._entries[at] for at in found]
        return tuple([route for route, rest in candidates if rest is None or rest(attributes)])


class _AttributeIndex:
    """Places of routes by the terms on one attribute."""

    __slots__ = ("_exact", "_prefixes", "_suffixes")

    def __init__(self, filed: dict[Term, list[int]]) -> None:
        exact: dict[str, list[int]] = {}
        prefixes: dict[str, list[int]] = {}
        suffixes: dict[str, list[int]] = {}
        for term, places in filed.items():
            if isinstance(term, Exact):
                exact[term.value] = places
            elif isinstance(term, Prefix):
                prefixes[term.value] = places
            else:
                # What ends with `x` starts with `x` when both are read backwards.
                suffixes[term.value[::-1]] = places
        self._exact = exact
        self._prefixes = PrefixTable(prefixes) if prefixes else None
        self._suffixes = PrefixTable(suffixes) if suffixes else None

    def find(self, text: str, found: list[int]) -> None:
        """Add the places of every term that holds for `text` to `found`."""
        places = self._exact.get(text)
        if places is not None:
            found += places
        if self._prefixes is not None:
            self._prefixes.find(text, found)
        if self._suffixes is not None:
            self._suffixes.find(text[::-1], found)


class PrefixTable:
    """`entries` by prefix.

    The prefixes stand sorted, each knowing the place of the longest other one that it starts with. All that a
    text starts with are on that chain from the last one that does not sort behind the text: whatever
    sorts between a prefix and a text that starts with it starts with it as well.
    """

    __slots__ = ("_entries", "_prefixes", "_shorter")

    def __init__(self, entries: Mapping[str, Sequence[int]]) -> None:
        self._prefixes = sorted(entries)
        self._entries = [entries[each] for each in self._prefixes]
        self._shorter: list[int] = []
        chain: list[int] = []
        for at, prefix in enumerate(self._prefixes):
            while chain and not prefix.startswith(self._prefixes[chain[-1]]):
                chain.pop()
            self._shorter.append(chain[-1] if chain else -1)
            chain.append(at)

    def find(self, text: str, found: list[int]) -> None:
        """Add the entries of every prefix of `text` to `found`."""
        at = bisect_right(self._prefixes, text) - 1
        while at >= 0:
            if text.startswith(self._prefixes[at]):
                found += self._entries[at]
            at = self._shorter[at]


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
