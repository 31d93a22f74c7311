"""The order of an inbox: the sender counts what goes there, and the reader sorts by the numbers. Pure.

The contract says `ordering: source` of a standard queue. No queue on the way keeps the order, so it is in the
events: each carries its positions in `orderin`, for each such inbox `inbox/priority/rule/number`. Numbers
count from 1 without gaps, for each inbox and priority within one epoch of the sender: an alarm never waits
for what is less urgent. The `rule` stands for the routes and guarantees that decide what is counted. A router
whose contract has others there takes the position away, since by those the numbers would have gaps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final, NamedTuple

from eventplane.contract import (
    Channel,
    Contract,
    DeliveryGuarantee,
    Ordering,
    Place,
    Priority,
    Route,
    Transport,
)
from eventplane.contract.canonical import canonical_bytes
from eventplane.contract.subscription import subscribed_routes
from eventplane.envelope import Envelope, Sender
from eventplane.filter_texts import to_document
from eventplane.guarantee import is_promised
from eventplane.names import EPOCH, ORDER, ORDER_EPOCH
from eventplane.route_index import RouteIndex
from eventplane.values import whole_number

_MOST: Final = 10**12 - 1
_RULE_DIGITS: Final = 8
_LONGEST: Final = 64
"""Most characters of a counter and of an epoch: readers remember both, whoever wrote them."""
_SEPARATOR: Final = "/"


class Stream(NamedTuple):
    """A sequence of events: those that `sender` counted within `epoch` by `counter`.

    `sender` is a device as a whole (`home-1/`) or a cloud service; `counter` is `inbox/priority/rule`.
    """

    sender: str
    epoch: str
    counter: str

    @property
    def text(self) -> str:
        """One text that names it; none of the parts has a line end."""
        return "\n".join(self)

    @property
    def rank(self) -> int:
        """The rank of its priority; the last for one that there is not."""
        try:
            return Priority(self.counter.split(_SEPARATOR)[1]).rank
        except (IndexError, ValueError):
            return Priority.LOW.rank

    @property
    def is_of_device(self) -> bool:
        """True if a device counts it, whose epoch lasts as long as its store."""
        return self.sender.endswith(_SEPARATOR)


def is_numbered(contract: Contract, address: str) -> bool:
    """Return whether senders count what goes to the channel `address`, so that its reader can order it."""
    channel = contract.channel(address)
    return (
        channel.ordering is Ordering.SOURCE
        and channel.transport is Transport.SQS
        and channel.delivery_guarantee is DeliveryGuarantee.AT_LEAST_ONCE
    )


class OrderedInboxes:
    """The inboxes of `contract` for which senders count.

    Routes that participants subscribed are left out: senders do not know them.
    """

    def __init__(self, contract: Contract) -> None:
        self._contract = contract
        added = subscribed_routes(contract)
        routes = [
            each
            for each in contract.routes_at(Place.CLOUD)
            if is_numbered(contract, each.destination) and each not in added
        ]
        self._inboxes = {each.destination: contract.channel(each.destination).participant for each in routes}
        self._rules = {
            inbox: _rule(contract, [each for each in routes if each.destination == address])
            for address, inbox in self._inboxes.items()
        }
        self._index = RouteIndex(routes) if routes else None

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return self._index is not None

    def counters(self, event: Envelope, priority: Priority, over: Channel) -> list[str]:
        """Return the counters of an `event` of `priority`, as the cloud's router gets it `over` a channel.

        What is delivered at best effort is not counted.
        """
        if self._index is None:
            return []
        inboxes = dict.fromkeys(
            self._inboxes[each.destination]
            for each in self._index.matching(event.attributes)
            if is_promised(self._contract, event, over, each)
        )
        return [_SEPARATOR.join((inbox, priority, self._rules[inbox])) for inbox in inboxes]

    def valid(self, event: Envelope) -> Envelope:
        """Return `event` without the positions that were counted by other routes than this contract's."""
        text = event.attributes.get(ORDER)
        if text is None:
            return event
        found = str(text).split(" ")
        valid = [each for each in found if self._is_valid(each)]
        if len(valid) == len(found):
            return event
        rest = event.without((ORDER,))
        return rest.stamped(**{ORDER: " ".join(valid)}) if valid else rest

    def _is_valid(self, position: str) -> bool:
        inbox, _, rule = position.rpartition(_SEPARATOR)[0].partition(_SEPARATOR)
        return self._rules.get(inbox) == rule.rpartition(_SEPARATOR)[2]


def next_positions(counters: list[str], counted: Mapping[str, int]) -> dict[str, int]:
    """Return the next number of each of `counters`; `counted` has the last one."""
    return {each: counted.get(each, 0) + 1 for each in counters}


def positions_text(positions: Mapping[str, int]) -> str:
    """Return the value of `orderin`."""
    return " ".join(f"{counter}{_SEPARATOR}{number}" for counter, number in positions.items())


def position_in(event: Envelope, participant: str) -> tuple[Stream, int] | None:
    """Return the stream and number of `event` in the inbox of `participant`, None where it has none.

    A number without an epoch was counted by somebody else than the sender, who sent on what it received.
    """
    for each in str(event.attributes.get(ORDER, "")).split(" "):
        counter, _, number = each.rpartition(_SEPARATOR)
        if counter.partition(_SEPARATOR)[0] == participant:
            stream = Stream(*_counted_by(event), counter)
            if not 0 < len(stream.epoch) <= _LONGEST or len(counter) > _LONGEST:
                return None
            try:
                return stream, whole_number(number, _MOST, 1)
            except ValueError:
                return None
    return None


def _counted_by(event: Envelope) -> tuple[str, str]:
    sender = event.sender
    if sender.device:
        return str(Sender(device=sender.device)), str(event.attributes.get(EPOCH, ""))
    return str(sender), str(event.attributes.get(ORDER_EPOCH, ""))


def _rule(contract: Contract, routes: list[Route]) -> str:
    """Return what stands for what `routes` deliver at least once, whatever they are called."""
    outboxes = [each.outbox for each in contract.participants.values()]
    counted = {canonical_bytes([to_document(each.filter), each.delivery_guarantee]) for each in routes}
    declared = [(each.name, each.delivery_guarantee) for each in contract.event_types.values()]
    declared += [(each.address, each.delivery_guarantee) for each in outboxes]
    less = {canonical_bytes(name) for name, each in declared if each is DeliveryGuarantee.BEST_EFFORT}
    texts = [*sorted(counted), *sorted(less)]
    return hashlib.sha256(b"\n".join(texts)).hexdigest()[:_RULE_DIGITS]
