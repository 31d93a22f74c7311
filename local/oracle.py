"""The demo's own verdict: what should have arrived, computed from what was sent, against what did arrive.

Pure functions over the players' record and the contract. The routes are evaluated by a plain loop, so that a
mistake in a router, its queues or its ledger cannot hide itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from eventplane.attributes import AttributeValue
from eventplane.contract import Contract, Place
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.device_reports import STARTED, forwarder_source
from eventplane.names import OWN_SERVICES
from local.sent import Key, SentEvent, SentPoison


@dataclass(frozen=True)
class Arrived:
    """What a service received: every key once, and how often one came again.

    `reports` are what devices report of themselves in their own time: nobody can say how many there must be.
    """

    received: Set[Key]
    duplicates: int
    reports: Set[Key] = frozenset()


@dataclass(frozen=True)
class Verdict:
    """What became of the events of one `service`.

    `lost` were expected and did not arrive, `unexpected` arrived and should not have; both name every event.
    """

    service: str
    expected: int
    delivered: int
    lost: tuple[Key, ...]
    unexpected: tuple[Key, ...]
    duplicates: int
    reports: int = 0

    @property
    def good(self) -> bool:
        """Whether exactly the expected events arrived. Repetitions may: the plane is at-least-once."""
        return not self.lost and not self.unexpected


def expected_by_service(
    contract: Contract,
    events: Iterable[SentEvent],
    malformed: Iterable[SentPoison] = (),
    devices: Iterable[str] = (),
) -> dict[str, set[Key]]:
    """The keys that each inbox of the contract's routes must get, by participant.

    A malformed message is expected as a dead letter, by its reason and digest (see `local.sent.Key`), and of
    each of `devices`, things with a forwarder, the report that it started.
    """
    uplink = contract.device.outbox.address
    expected: dict[str, set[Key]] = {
        contract.channel(route.destination).participant: set()
        for route in contract.routes
        if route.destination != uplink
    }
    for event in events:
        for destination in _destinations(contract, event, uplink):
            expected[contract.channel(destination).participant].add(event.key)
    dead_letters = {each.key for each in malformed}
    for destination in _matching(contract, Place.CLOUD, {"type": DEAD_LETTER_TYPE}):
        expected[contract.channel(destination).participant] |= dead_letters
    started = {(STARTED, forwarder_source(device)) for device in devices}
    for destination in _matching(contract, Place.CLOUD, {"type": STARTED}):
        expected[contract.channel(destination).participant] |= started
    # Functions of the plane read the others.
    own = {*OWN_SERVICES, contract.device.name}
    return {service: keys for service, keys in expected.items() if service not in own}


def dead_lettered(malformed: Iterable[SentPoison], arrived: Mapping[str, Arrived]) -> int:
    """How many of the `malformed` messages arrived somewhere as dead letters."""
    received = frozenset[Key]().union(*(each.received for each in arrived.values()))
    return len({each.key for each in malformed} & received)


def judge(expected: Mapping[str, Set[Key]], arrived: Mapping[str, Arrived]) -> list[Verdict]:
    """One verdict a service, in the order of `expected`. Who is not among `arrived` received nothing."""
    nothing = Arrived(frozenset(), 0)
    return [_verdict(service, keys, arrived.get(service, nothing)) for service, keys in expected.items()]


def _verdict(service: str, expected: Set[Key], arrived: Arrived) -> Verdict:
    return Verdict(
        service=service,
        expected=len(expected),
        delivered=len(expected & arrived.received),
        lost=tuple(sorted(expected - arrived.received)),
        unexpected=tuple(sorted(arrived.received - expected)),
        duplicates=arrived.duplicates,
        reports=len(arrived.reports),
    )


def _destinations(contract: Contract, event: SentEvent, uplink: str) -> set[str]:
    destinations: set[str] = set()
    if event.entered is Place.DEVICE:
        destinations = _matching(contract, Place.DEVICE, event.attributes)
        if uplink not in destinations:
            return destinations
        destinations.discard(uplink)
    destinations |= _matching(contract, Place.CLOUD, event.attributes)
    if contract.device.inbox.address in destinations:
        # What came down never goes up again.
        destinations |= _matching(contract, Place.DEVICE, event.attributes) - {uplink}
    return destinations


def _matching(contract: Contract, place: Place, attributes: Mapping[str, AttributeValue]) -> set[str]:
    return {
        route.destination
        for route in contract.routes
        if route.place is place and route.filter.matches(attributes)
    }
