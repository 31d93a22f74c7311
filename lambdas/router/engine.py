"""A contract, ready to route by."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache

from eventplane.contract import Contract
from eventplane.contract.publication import unserved
from eventplane.contract.subscription import without_costly
from eventplane.errors import EventPlaneError
from lambdas.router.payload import MESSAGE_SECONDS
from lambdas.router.planner import Planner


class UnsupportedDestinationError(EventPlaneError):
    """A route of the cloud leads where this router cannot write. `route` and `destination` say which."""

    route: str
    destination: str
    message = (
        "route {route!r} leads to {destination!r}, for which there is no queue; "
        "lead it to a cloud service's inbox, or to the device's and declare the participant `downlink`; "
        "then deploy the messaging stack"
    )


class UnknownSourceError(EventPlaneError):
    """The contract `version` has no channel called `source`, which feeds this router."""

    version: str
    source: str
    message = (
        "contract {version} has no channel {source!r}, but its queue is still deployed; "
        "keep the participant in the contract, or deploy without it"
    )


@dataclass(frozen=True, slots=True)
class RoutingEngine:
    """`contract`, and the `planner` that applies it to what comes over one channel.

    `lighter` gives the engine for a message whose filters exceed their time: without the costly filters that
    participants added. It has no limit of time.
    """

    contract: Contract
    planner: Planner
    lighter: Callable[[], RoutingEngine]

    def of(self, source: str) -> RoutingEngine:
        """Return the engine of what comes over the channel called `source`."""
        return RoutingEngine(self.contract, self.planner.of(source), lambda: self.lighter().of(source))


def build_engine(
    contract: Contract,
    sources: Sequence[str],
    inboxes: Collection[str],
    cpu_time: Callable[[], float],
    payload_s: float = MESSAGE_SECONDS,
) -> RoutingEngine:
    """The engine of the first of `sources`, which feed the router; it can write to `inboxes`.

    The payloads of a message may take `payload_s` of computing time, which `cpu_time` gives.

    Raises `UnsupportedDestinationError`, `UnknownSourceError`.
    """
    for route in unserved(contract, inboxes):
        raise UnsupportedDestinationError(route.name, route.destination)
    for each in sources:
        participant, _, _ = each.partition(".")
        if participant not in contract.participants:
            raise UnknownSourceError(contract.version, each)
    source = sources[0]

    @cache
    def lighter() -> RoutingEngine:
        reduced = without_costly(contract)
        return RoutingEngine(reduced, Planner(reduced, source, cpu_time, payload_s=payload_s), lighter)

    planner = Planner(contract, source, cpu_time, has_time_limit=True, payload_s=payload_s)
    return RoutingEngine(contract, planner, lighter)
