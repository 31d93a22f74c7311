"""The content-based router: which routes an event takes. Stateless; the same on device and in cloud."""

from __future__ import annotations

from eventplane.contract import Contract, Place, Route
from eventplane.envelope import Envelope
from eventplane.route_index import RouteIndex


class Router:
    """Decides the routes of one `place` of a `contract`."""

    def __init__(self, contract: Contract, place: Place) -> None:
        self.contract = contract
        self.place = place
        self._index = RouteIndex(contract.routes_at(place))

    def route(self, event: Envelope) -> tuple[Route, ...]:
        """The routes whose filter `event` matches, by name; empty when it is unrouted."""
        return self._index.matching(event.attributes)
