"""The routes of a router, filed so that an event meets only those that it may match.

Each route is filed under its rarest cover: what it has alone decides more than what it shares with many.
An event's attributes are looked up, and what was found is asked for the rest of its condition. The answer is
that of asking every route; a property test holds the two together.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from eventplane.attributes import attribute_text
from eventplane.contract import Route
from eventplane.filters import Attributes, Exact, Prefix
from eventplane.prefix_table import PrefixTable
from eventplane.route_terms import covers, residual
from eventplane.terms import Cover, Term, weakness


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
