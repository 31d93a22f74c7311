"""A contract, ready to route by."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache

from eventplane.contract import Channel, Contract
from eventplane.contract.publication import Head, unserved
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
    participants added. It has no limit of time. The contract is in force by `head` (None: it came with the
    code). `candidate` judges the events that devices accepted under the one that is `offered`.
    """

    contract: Contract
    planner: Planner
    lighter: Callable[[], RoutingEngine]
    head: Head | None = None
    candidate: Contract | None = None
    offered: Contract | None = None

    def of(self, source: str) -> RoutingEngine:
        """Return the engine of what comes over the channel called `source`."""
        planner = self.planner.of(source)
        return replace(self, planner=planner, lighter=lambda: self.lighter().of(source))

    def under(self, head: Head, offered: Contract | None, candidate: RoutingEngine | None) -> RoutingEngine:
        """Return the engine that is in force by `head`, beside that of the candidate that is `offered`."""
        if offered is None or candidate is None:
            return replace(self, head=head)
        return replace(
            self,
            planner=self.planner.beside(offered.version, candidate.planner),
            lighter=lambda: self.lighter().under(head, offered, candidate.lighter()),
            head=head,
            candidate=candidate.contract,
            offered=offered,
        )

    @property
    def contracts(self) -> tuple[Contract, ...]:
        """The contracts that it decides by."""
        return (self.contract,) if self.candidate is None else (self.contract, self.candidate)

    def channel(self, destination: str, version: str) -> Channel:
        """Return the channel as the contract of this `version` has it, or else one of `contracts`.

        Raises KeyError for a destination that none has.
        """
        for each in sorted(self.contracts, key=lambda each: each.version != version):
            with suppress(KeyError):
                return each.channel(destination)
        raise KeyError(destination)


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
