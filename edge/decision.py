"""Decides whether a message is numbered, stored and routed, or becomes a dead letter. No I/O."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from edge.delivery_queues import BEST_EFFORT_RANK, UNSTORED_RANK, VolatileEvent
from edge.interest import Interest
from edge.numbering import RecentKeys, expires_ms, stamp, stamp_positions
from edge.spool import StoredEvent
from eventplane.contract import Channel, Contract, Ordering, Place, Priority, Route
from eventplane.dead_letter import Refusal, dead_letter
from eventplane.device_reports import key_digest, router_source
from eventplane.envelope import Envelope, Sender, parse_event
from eventplane.errors import EnvelopeError
from eventplane.guarantee import is_expired, is_promised, lifetime_ms
from eventplane.limits import MAX_EVENT_BYTES, MAX_SENT_EVENT_BYTES
from eventplane.names import EXPIRY_TIME, FOLLOWED_CONTRACT, LIFETIME_ATTRIBUTES, REPLY_TYPE
from eventplane.reasons import Reason
from eventplane.router import Router
from eventplane.sending import SendingRights, stamp_sender
from eventplane.values import timestamp, timestamp_ms

if TYPE_CHECKING:
    from eventplane.ordering import OrderedInboxes

NO_ATTRIBUTES = (
    "; the payload has no CloudEvents attributes: send structured mode (one JSON object with attributes and "
    "data), for the user properties of MQTT 5's binary mode do not come through"
)
"""The remedy in the dead letter of a payload that names no `specversion`."""

_ID_DIGITS = 32


class SequenceNumber(NamedTuple):
    """The number of the next event: number, time in ms of uptime, last number of each ordered inbox."""

    sequence: int
    uptime_ms: int
    counted: Mapping[str, int] = MappingProxyType({})


class Decision(NamedTuple):
    """The decision about a message: `arrival` to store, `volatile` events to send, the reason if `refused`.

    `key` is remembered once that is done; a duplicate has none, and nothing is done for it. If there is no
    room for an urgent event, `unstored` is sent in its place. `unwanted` are addresses whose reader handles
    other events.
    """

    key: bytes | None = None
    arrival: StoredEvent | None = None
    volatile: tuple[VolatileEvent, ...] = ()
    refused: str | None = None
    type: str = ""
    unstored: tuple[VolatileEvent, ...] = ()
    unwanted: tuple[str, ...] = ()


class DownlinkDecision(NamedTuple):
    """The decision about an event from the cloud: deliveries to store (`expiries` by address), `volatile`
    ones.

    `unwanted` are addresses whose reader handles other events.
    """

    event: Envelope
    rank: int
    expiries: Mapping[str, int | None]
    volatile: tuple[VolatileEvent, ...]
    unwanted: tuple[str, ...]

    def arrival(self, rank: int, sequence: int) -> StoredEvent:
        """Return what is stored under `sequence`."""
        return StoredEvent(sequence, rank, self.event.json, self.expiries, key_digest(self.event.key))


class Decider:
    """Decides for the device `thing`, under `contract`, in the spool's `epoch`.

    `now` is the wall clock, for time stamps only. `recent` has the keys of stored events; the caller adds to
    it. `interest` knows what need not be forwarded. Events name a contract that `is_sent` by the cloud.
    """

    def __init__(
        self,
        contract: Contract,
        thing: str,
        epoch: str,
        now: Callable[[], datetime],
        recent: RecentKeys,
        interest: Interest,
        *,
        is_sent: bool = False,
    ) -> None:
        self._contract = contract
        self.version = contract.version
        self._router = Router(contract, Place.DEVICE)
        self._rights = SendingRights(contract)
        self._named = {FOLLOWED_CONTRACT: contract.version} if is_sent else {}
        self._own = Sender(service=contract.device.name).attributes | self._named
        self._uplink = contract.device.outbox
        self._ordered = _ordered_inboxes(contract)
        self._cloud_sender = Sender(device=thing)
        self._source = router_source(thing)
        self._epoch = epoch
        self._now = now
        self._recent = recent
        self._interest = interest

    def accept(
        self, payload: bytes, channel: Channel, number: SequenceNumber, pending: Container[bytes] = ()
    ) -> Decision:
        """Decide on a message that came over `channel`; an event gets `number`.

        `pending` are keys that will be remembered when the batch before it is stored.
        """
        try:
            return self._accept(payload, channel, number, pending)
        except EnvelopeError as error:
            refusal = Refusal(error.reason, error.detail + _advice(payload))
            return self.refuse(payload, channel.address, channel, refusal, number, pending)

    def _accept(
        self, payload: bytes, channel: Channel, number: SequenceNumber, pending: Container[bytes]
    ) -> Decision:
        """Raises `EnvelopeError` for a message that becomes a dead letter."""
        said = parse_event(payload).without((FOLLOWED_CONTRACT, *LIFETIME_ATTRIBUTES))
        event = stamp_sender(self._dated(said), Sender(service=channel.participant))
        # The room for all that the plane adds is that of the largest event that a service can count on.
        if self._named and event.bytes <= MAX_SENT_EVENT_BYTES:
            event = event.with_attributes(self._named)
        key = key_digest(event.key)
        if key in pending or key in self._recent:
            return Decision()
        stamped = stamp(event, self._epoch, number.sequence)
        if refusal := self._rights.refusal(event):
            raise EnvelopeError(Reason.SENDER_NOT_ALLOWED, refusal.detail)
        routes = self._router.route(event)
        if not routes:
            raise EnvelopeError(Reason.UNROUTED, f"no route of the device takes type {event.type!r}")
        priority = self._contract.priority(event, channel)
        channels = self._channels(routes)
        promised = self._promised(channels, routes, event, channel)
        # What is not stored is sent without its number.
        sent = [(each, stamped if each in promised else event) for each in channels]
        destinations, unwanted = self._split_by_interest(sent, priority)
        promised = [each for each in promised if each in destinations]
        positions = self._positions(stamped, priority, number, promised)
        stamped = stamp_positions(stamped, positions)
        volatile = _volatile((each for each in destinations if each not in promised), event, key)
        lifetime = lifetime_ms(event)
        expiries = {each.address: expires_ms(number.uptime_ms, lifetime, channel, each) for each in promised}
        arrival: StoredEvent | None = None
        unstored: tuple[VolatileEvent, ...] = ()
        if promised:
            arrival = StoredEvent(number.sequence, priority.rank, stamped.json, expiries, key, positions)
            if priority is Priority.URGENT:
                unstored = _volatile(destinations, event, key, UNSTORED_RANK)
        return Decision(key, arrival, volatile, None, event.type, unstored, unwanted)

    def _dated(self, event: Envelope) -> Envelope:
        """Return `event` with a `time` by the clock of the device, if its lifetime is unknown without.

        Not a reply, whose `expirytime` is of the asker's clock, nor what would be over by this clock at once.
        """
        attributes = event.attributes
        if EXPIRY_TIME not in attributes or "time" in attributes or event.type == REPLY_TYPE:
            return event
        now = self.timestamp()
        return event if is_expired(event, timestamp_ms(now)) else event.with_attributes({"time": now})

    def decide_downlink(self, event: Envelope, channel: Channel, number: SequenceNumber) -> DownlinkDecision:
        """Decide on an `event` from the cloud: it never goes back to the cloud, even if a route leads there.

        It gets no number of the device, because these count what goes up.
        """
        routes = self._router.route(event)
        channels = [each for each in self._channels(routes) if each.address != self._uplink.address]
        priority = self._contract.priority(event, channel)
        channels, unwanted = self._split_by_interest([(each, event) for each in channels], priority)
        promised = self._promised(channels, routes, event, channel)
        lifetime = lifetime_ms(event)
        return DownlinkDecision(
            event,
            priority.rank,
            {each.address: expires_ms(number.uptime_ms, lifetime, channel, each) for each in promised},
            _volatile((each for each in channels if each not in promised), event, key_digest(event.key)),
            unwanted,
        )

    def refuse(
        self,
        original: bytes,
        address: str,
        channel: Channel,
        refusal: Refusal,
        number: SequenceNumber,
        pending: Container[bytes] = (),
    ) -> Decision:
        """Return the dead letter of `original`, which came over or was meant for `address`.

        `channel` gives its priority.
        """
        event = dead_letter(
            # From the content, so that the same refusal after a crash is recognisably the same dead letter.
            id=hashlib.sha256(address.encode() + b"\n" + original).hexdigest()[:_ID_DIGITS],
            source=self._source,
            time=self.timestamp(),
            refusal=refusal,
            channel=address,
            original=original,
            contract_version=self._contract.version,
            sender=Sender(service=channel.participant),
        ).stamped(**self._own)
        key = key_digest(event.key)
        if key in pending or key in self._recent:
            return Decision(refused=refusal.reason)
        return Decision(key, self._report(event, channel, number), (), refusal.reason, event.type)

    def own(self, report: Envelope, number: SequenceNumber, lifetime: int | None = None) -> StoredEvent:
        """Return the forwarder's own `report` to store, with a `lifetime` in milliseconds (None: endless)."""
        return self._report(report.stamped(**self._own), self._uplink, number, lifetime)

    def volatile(self, report: Envelope, rank: int) -> VolatileEvent:
        """Return the forwarder's own `report` as an event for the cloud that is not stored."""
        stamped = report.stamped(**self._own)
        return VolatileEvent(self._uplink.address, stamped.type, stamped.json, key_digest(stamped.key), rank)

    def addresses(self, event: Envelope) -> list[str]:
        """Return where the routes of the device lead `event`, also where no reader wants it."""
        return [each.address for each in self._destinations(event)]

    @property
    def destinations(self) -> list[str]:
        """Every address that a delivery of the device can have, the uplink's first."""
        routed = (route.destination for route in self._contract.routes_at(Place.DEVICE))
        return list(dict.fromkeys([self._uplink.address, *routed]))

    def timestamp(self) -> str:
        """Return the value of a `time` attribute."""
        return timestamp(self._now())

    def _report(
        self, event: Envelope, channel: Channel, number: SequenceNumber, lifetime: int | None = None
    ) -> StoredEvent:
        """Return a report to store, which expires by its own `lifetime`, not by its channels'."""
        stamped = stamp(event, self._epoch, number.sequence)
        # A contract without a route for reports does not lose them.
        destinations = self._destinations(event) or [self._uplink]
        expires = expires_ms(number.uptime_ms, lifetime)
        expiries = dict.fromkeys((each.address for each in destinations), expires)
        priority = self._contract.priority(event, channel)
        positions = self._positions(stamped, priority, number, destinations)
        text = stamp_positions(stamped, positions).json
        return StoredEvent(number.sequence, priority.rank, text, expiries, key_digest(event.key), positions)

    def _positions(
        self, event: Envelope, priority: Priority, number: SequenceNumber, stored_for: Sequence[Channel]
    ) -> dict[str, int]:
        """Return the numbers of a stamped `event` in the ordered inboxes to which the cloud routes it."""
        if not self._ordered or self._uplink not in stored_for:
            return {}
        from eventplane.ordering import next_positions

        counters = self._ordered.counters(stamp_sender(event, self._cloud_sender), priority, self._uplink)
        return next_positions(counters, number.counted)

    def _destinations(self, event: Envelope) -> list[Channel]:
        return self._channels(self._router.route(event))

    def _channels(self, routes: Iterable[Route]) -> list[Channel]:
        addresses = dict.fromkeys(route.destination for route in routes)
        return [self._contract.channel(each) for each in addresses]

    def _promised(
        self, destinations: list[Channel], routes: Iterable[Route], event: Envelope, over: Channel
    ) -> list[Channel]:
        """Return those of `destinations` to which one of the `routes` delivers at least once."""
        addresses = {each.destination for each in routes if is_promised(self._contract, event, over, each)}
        return [each for each in destinations if each.address in addresses]

    def _split_by_interest(
        self, sent: Iterable[tuple[Channel, Envelope]], priority: Priority
    ) -> tuple[list[Channel], tuple[str, ...]]:
        """Return the channels whose reader wants the event as `sent` there, and the others' addresses."""
        wanted: list[Channel] = []
        unwanted: list[str] = []
        for channel, event in sent:
            if channel.address == self._uplink.address:
                # The cloud's router stamps the device before it filters.
                event = stamp_sender(event, self._cloud_sender)
            if self._interest.wants(channel.address, event, priority):
                wanted.append(channel)
            else:
                unwanted.append(channel.address)
        return wanted, tuple(unwanted)


def _ordered_inboxes(contract: Contract) -> OrderedInboxes | None:
    """Return the inboxes in which events have numbers; a contract without any costs no memory for them."""
    if all(each.inbox.ordering is Ordering.NONE for each in contract.participants.values()):
        return None
    from eventplane.ordering import OrderedInboxes

    return OrderedInboxes(contract)


def _advice(payload: bytes) -> str:
    """Return what to add to the problem of a `payload` in which no attribute of CloudEvents can be seen."""
    # An MQTT 5 client in binary mode has them in user properties, which are not read: all that shows is what
    # is missing.
    return "" if b'"specversion"' in payload[:MAX_EVENT_BYTES] else NO_ATTRIBUTES


def _volatile(
    channels: Iterable[Channel], event: Envelope, key: bytes, rank: int = BEST_EFFORT_RANK
) -> tuple[VolatileEvent, ...]:
    return tuple(VolatileEvent(each.address, event.type, event.json, key, rank) for each in channels)
