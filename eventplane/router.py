"""The content-based router: which routes an event takes. The same on the device and in the cloud."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from eventplane.attributes import KNOWN, Attributes
from eventplane.contract import Contract, Place, Route
from eventplane.envelope import Envelope
from eventplane.filters import attribute_names
from eventplane.limits import MAX_REMEMBERED_BYTES, MAX_REMEMBERED_ROUTINGS

_FEW: Final = 2
"""Routes that are compared one by one. Ours: an index of two saves 0.5 us, and takes memory on a device."""

_ENTRY_BYTES: Final = 150
"""Bytes of an entry beside its objects: its place in the dictionary, which is at least a third full, and what
the garbage collector needs for the two tuples."""

_PAUSE: Final = 64
"""Events that are routed without the memory when it did not pay, for each entry that it had. Ours: adding an
entry costs half a routing, so this makes it less than one percent."""

_PARTS: Final = 256
"""An entry takes at most this part of the memory, so that a few long attributes do not empty it."""


class Router:
    """Decide the routes of one `place` of a `contract`.

    It remembers the routes for the values of the attributes that its filters look at: most events of a home
    differ in others. The memory is bounded, emptied when full, and not used for a while when fewer events
    found their routes in it than were added to it.
    """

    def __init__(self, contract: Contract, place: Place) -> None:
        self.contract = contract
        self.place = place
        routes = contract.routes_at(place)
        self._matching = _matcher(routes)
        self._names = sorted({name for each in routes for name in attribute_names(each.filter)})
        # In Python the Integer 1 equals the Boolean true. A known attribute has the same type in every event.
        self._is_typed = not KNOWN.issuperset(self._names)
        self._remembered: dict[tuple[object, ...], tuple[Route, ...]] = {}
        self._bytes = 0
        self._hits = 0
        self._paused = 0

    def route(self, event: Envelope) -> tuple[Route, ...]:
        """Return the routes whose filter `event` matches, in the contract's order; none if it is unrouted."""
        attributes = event.attributes
        if self._paused:
            self._paused -= 1
            return self._matching(attributes)
        key: tuple[object, ...] = tuple(map(attributes.get, self._names))
        if self._is_typed:
            key += tuple(map(type, key))
        routes = self._remembered.get(key)
        if routes is None:
            return self._remember(key, attributes)
        self._hits += 1
        return routes

    def _remember(self, key: tuple[object, ...], attributes: Attributes) -> tuple[Route, ...]:
        routes = self._matching(attributes)
        values = key[: len(self._names)]
        size = _ENTRY_BYTES + sum(each.__sizeof__() for each in (key, routes, *values))
        if size > MAX_REMEMBERED_BYTES // _PARTS:
            return routes
        if len(self._remembered) == MAX_REMEMBERED_ROUTINGS or self._bytes + size > MAX_REMEMBERED_BYTES:
            if self._hits < len(self._remembered):
                self._paused = _PAUSE * len(self._remembered)
            self._remembered.clear()
            self._bytes = self._hits = 0
        self._remembered[key] = routes
        self._bytes += size
        return routes


def _matcher(routes: Sequence[Route]) -> Callable[[Attributes], tuple[Route, ...]]:
    """Return what finds those of `routes` that match, in their order."""
    if len(routes) > _FEW:
        from eventplane.route_index import RouteIndex

        return RouteIndex(routes).matching
    filters = [(each, each.filter.matches) for each in routes]
    return lambda attributes: tuple([route for route, matches in filters if matches(attributes)])
