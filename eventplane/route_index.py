"""The index of a router's routes: an event is compared only with those that it may match.

Each route is indexed under its rarest cover (`expression_covers.Cover`): a term of its own selects more than
one that many routes have. The attributes of an event are looked up, and of each route found the rest of its
filter is evaluated. The result is that of evaluating every route's filter, which property tests check.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from eventplane.attributes import Attributes, attribute_text
from eventplane.contract import Route
from eventplane.expression_covers import Cover, either, weakness
from eventplane.filters import All, Any, Combination, Exact, Filter, Prefix, Term


class RouteIndex:
    """An index of `routes` by their most selective terms."""

    __slots__ = ("_always", "_attributes", "_entries")

    def __init__(self, routes: Sequence[Route]) -> None:
        choices = [tuple(covers(route.filter)) for route in routes]
        shared = Counter(term for choice in choices for cover in choice for term in cover)

        def rarity(cover: Cover) -> tuple[bool, int, tuple[int, int, int]]:
            by_presence = any(not term.value for term in cover)
            return by_presence, sum(shared[term] for term in cover), weakness(cover)

        self._always: list[int] = []
        self._entries: list[tuple[Route, Callable[[Attributes], bool] | None]] = []
        indexed: dict[str, dict[Term, list[int]]] = defaultdict(lambda: defaultdict(list))
        for at, (route, choice) in enumerate(zip(routes, choices, strict=True)):
            cover = min(choice, key=rarity, default=None)
            rest = route.filter if cover is None else residual(route.filter, cover)
            self._entries.append((route, rest.matches if rest else None))
            if cover is None:
                self._always.append(at)
                continue
            for term in cover:
                indexed[term.attribute][term].append(at)
        self._attributes = [(name, _AttributeIndex(terms)) for name, terms in indexed.items()]

    def matching(self, attributes: Attributes) -> tuple[Route, ...]:
        """Return the routes that match, in the order in which they were given."""
        found = self._always.copy()
        for name, index in self._attributes:
            held = attributes.get(name)
            if held is not None:
                index.find(held if held.__class__ is str else attribute_text(held), found)
        if len(found) > 1:
            # A route may be indexed under several terms.
            found = sorted(set(found))
        candidates = [self._entries[at] for at in found]
        return tuple([route for route, rest in candidates if rest is None or rest(attributes)])


class _AttributeIndex:
    """The positions of routes by the terms on one attribute."""

    __slots__ = ("_exact", "_prefixes", "_suffixes")

    def __init__(self, indexed: dict[Term, list[int]]) -> None:
        exact: dict[str, list[int]] = {}
        prefixes: dict[str, list[int]] = {}
        suffixes: dict[str, list[int]] = {}
        for term, positions in indexed.items():
            if isinstance(term, Exact):
                exact[term.value] = positions
            elif isinstance(term, Prefix):
                prefixes[term.value] = positions
            else:
                # A text ends with `x` if the reversed text starts with the reversed `x`.
                suffixes[term.value[::-1]] = positions
        self._exact = exact
        self._prefixes = PrefixTable(prefixes) if prefixes else None
        self._suffixes = PrefixTable(suffixes) if suffixes else None

    def find(self, text: str, found: list[int]) -> None:
        """Add the positions of every term that is true for `text` to `found`."""
        positions = self._exact.get(text)
        if positions is not None:
            found += positions
        if self._prefixes is not None:
            self._prefixes.find(text, found)
        if self._suffixes is not None:
            self._suffixes.find(text[::-1], found)


class PrefixTable:
    """Positions by prefix, found for a text in the time of one binary search and of the result.

    The prefixes are sorted, each with the index of the longest other one that it starts with. All prefixes of
    a text are on the chain that begins at the last one that does not sort after the text: every string that
    sorts between a prefix and a text that starts with it starts with the prefix as well.
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
        """Add the positions of every prefix of `text` to `found`."""
        at = bisect_right(self._prefixes, text) - 1
        while at >= 0:
            if text.startswith(self._prefixes[at]):
                found += self._entries[at]
            at = self._shorter[at]


def covers(filter: Filter) -> Iterator[Cover]:
    """Yield the covers that follow from the form of `filter`; none for `not`."""
    match filter:
        case Term():
            yield frozenset((filter,))
        case All():
            for each in filter.filters:
                yield from covers(each)
        case Any():
            yield from either(covers(each) for each in filter.filters)
        case Combination():
            return
        case _:
            # Loaded already where there is an expression, and not needed elsewhere.
            from eventplane.expression_covers import expression_covers

            yield from expression_covers(filter.tree)


def residual(filter: Filter, cover: Cover) -> Filter | None:
    """Return what is left to evaluate for an event for which a term of `cover` is true; None for nothing."""
    match filter:
        case Term():
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
