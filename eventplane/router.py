"""The content-based router: which routes an event takes. Stateless; the same on device and in cloud."""

from __future__ import annotations

from eventplane.contract import Contract, Place, Route
from eventplane.envelope import Envelope


class Router:
    """Decides the routes of one `place` of a `contract`."""

    def __init__(self, contract: Contract, place: Place) -> None:
        self.contract = contract
        self.place = place
        self._routes = contract.routes_at(place)

    def route(self, event: Envelope) -> tuple[Route, ...]:
        """The routes whose filter `event` matches, by name; empty when it is unrouted."""
        return tuple(route for route in self._routes if route.filter.matches(event.attributes))
