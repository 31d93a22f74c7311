"""What a contract says, as frozen values, and the closed sets of words that it may use (docs/contract.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from eventplane.attributes import priority_of
from eventplane.envelope import Envelope
from eventplane.filters import Filter
from eventplane.limits import MAX_RECEIVES


class ParticipantKind(StrEnum):
    """Where a participant lives: the device itself, a service on it, or a service in the cloud."""

    DEVICE = "device"
    DEVICE_SERVICE = "device_service"
    CLOUD_SERVICE = "cloud_service"

    @property
    def is_on_device(self) -> bool:
        """Whether such a participant sends and receives on a device."""
        return self is not ParticipantKind.CLOUD_SERVICE


class Place(StrEnum):
    """Where a router runs."""

    DEVICE = "device"
    CLOUD = "cloud"


class Transport(StrEnum):
    """What the plane itself carries channels over: the home's Mosquitto, AWS IoT Core, an SQS queue.

    Packages add others for cloud services, each under a name of its own (docs/protocols.md).
    """

    MQTT = "mqtt"
    IOT_CORE = "iot_core"
    SQS = "sqs"
    SQS_FIFO = "sqs_fifo"


class DeliveryGuarantee(StrEnum):
    """How reliable a channel is."""

    AT_LEAST_ONCE = "at_least_once"
    BEST_EFFORT = "best_effort"


class Priority(StrEnum):
    """What overtakes what; `rank` 0 goes first."""

    URGENT = "urgent"
    NORMAL = "normal"
    LOW = "low"

    @property
    def rank(self) -> int:
        return _RANKS[self]


_RANKS = {Priority.URGENT: 0, Priority.NORMAL: 1, Priority.LOW: 2}


class Ordering(StrEnum):
    """What order a channel promises: none, or the order of sending within one source."""

    NONE = "none"
    SOURCE = "source"


class WhenFull(StrEnum):
    """What the device's store does with a new event when it has no room: refuse it, or drop the oldest."""

    REFUSE = "refuse"
    DROP_OLDEST = "drop_oldest"


class SchemaCheck(StrEnum):
    """Which payloads the cloud's router checks: none, those of a known schema version, or all."""

    NONE = "none"
    KNOWN = "known"
    STRICT = "strict"


class Downlink(StrEnum):
    """How an event goes down to a device: of a state only the newest counts, each command is delivered."""

    STATE = "state"
    COMMAND = "command"


class Forward(StrEnum):
    """What a device sends up of what its routes lead there: all, or what the cloud is known to want."""

    ALL = "all"
    WANTED = "wanted"


class Reach(StrEnum):
    """Which devices a cloud service may address: one at a time, or every one (also groups, and all)."""

    ONE = "one"
    EVERYONE = "everyone"


class WebhookMode(StrEnum):
    """How a webhook carries an event (CloudEvents HTTP binding): all as body, or attributes as headers."""

    STRUCTURED = "structured"
    BINARY = "binary"


@dataclass(frozen=True, slots=True)
class Webhook:
    """How an inbox is delivered to its HTTPS endpoint, which each environment names for itself.

    `timeout_s` seconds one attempt may take; `give_up_after_s` seconds in the inbox after which a failing
    event becomes a dead letter; `requests_per_minute` at most go to the endpoint (None: no limit).
    """

    mode: WebhookMode
    timeout_s: int
    give_up_after_s: int
    requests_per_minute: int | None


@dataclass(frozen=True, slots=True)
class Channel:
    """One outbox or inbox, named from its participant's side.

    `transport` is a `Transport`, or the name of a protocol that a package adds;
    `expiry_s` seconds an event is worth delivering (None: for ever); `batching_delay_ms` milliseconds it may
    wait for company; `retention_s` seconds a queue keeps it; `max_receives` deliveries tried before the
    dead-letter queue; `receipts`: the reader confirms each event after handling it, not at reception;
    `when_full`: what happens to its new events when the device's store has no room for their priority;
    `webhook`: an HTTPS endpoint is the reader (None: somebody reads the queue); `downlink`: how a device's
    inbox delivers events of types that do not say; `forward`: what a device's outbox takes up.
    `events_per_message`: events that one message of an inbox queue may carry (`eventplane.sqs_binding`).
    """

    participant: str
    box: str
    transport: Transport | str
    delivery_guarantee: DeliveryGuarantee
    priority: Priority
    ordering: Ordering
    expiry_s: int | None
    batching_delay_ms: int
    retention_s: int
    max_receives: int
    receipts: bool
    when_full: WhenFull
    webhook: Webhook | None
    downlink: Downlink
    forward: Forward = Forward.ALL
    events_per_message: int = 1

    @property
    def address(self) -> str:
        """How routes name the channel: `participant.box`."""
        return f"{self.participant}.{self.box}"

    def receives_at(self, priority: Priority) -> int:
        """Return the receives before the dead-letter queue of a queue that carries it at `priority`.

        Urgent messages are tried as often as SQS counts: they wait seconds between two tries, for hours.
        """
        return MAX_RECEIVES if priority is Priority.URGENT else self.max_receives

    @property
    def is_added_protocol(self) -> bool:
        """Whether a protocol that a package adds carries the channel."""
        return not isinstance(self.transport, Transport)


@dataclass(frozen=True, slots=True)
class Participant:
    """Someone who sends through `outbox` and receives through `inbox`.

    `sends` are the types of its events, a prefix where one ends in `.*`; None where it does not say. One that
    is `retired` still has its queues and may empty them, but no route leads to it. `asks` are, likewise, the
    types of its requests, whose replies come over `replies`; one that asks nothing has no such channel.

    `may_subscribe` passes the events that a cloud service may subscribe to (None: those of its routes);
    `may_address` says to which devices it may send: a `Reach`, or the names of groups, where it may address
    a group by its name and each device in it.
    """

    name: str
    kind: ParticipantKind
    description: str
    inbox: Channel
    outbox: Channel
    sends: tuple[str, ...] | None
    retired: bool = False
    asks: tuple[str, ...] = ()
    replies: Channel | None = None
    may_subscribe: Filter | None = None
    may_address: Reach | tuple[str, ...] = Reach.ONE

    @property
    def channels(self) -> tuple[Channel, ...]:
        """All that it has."""
        return (self.inbox, self.outbox) if self.replies is None else (self.inbox, self.outbox, self.replies)

    def may_send(self, event_type: str) -> bool:
        """Whether `sends` names the type; a participant that does not say counts as sending none."""
        return _names(self.sends or (), event_type)

    def may_ask(self, event_type: str) -> bool:
        """Whether `asks` names the type."""
        return _names(self.asks, event_type)


def _names(types: tuple[str, ...], event_type: str) -> bool:
    return any(
        event_type.startswith(each[:-1]) if each.endswith(".*") else event_type == each for each in types
    )


@dataclass(frozen=True, slots=True)
class EventType:
    """One `type` of event: its priority (None: its events decide), how it goes down to devices (None: as
    their inbox says), and the JSON Schemas of its payload.

    `delivery_guarantee` is that of its events where their route declares none (None: nor does the type).
    `schemas` are the versions of the payload by `$id`, which an event names in `dataschema`; one that names
    none is of the first. A schema from a contract of format 1 may have no `$id`, and then stands under ''.
    """

    name: str
    description: str
    priority: Priority | None
    schemas: Mapping[str, Mapping[str, Any]] = field(hash=False)
    schema_check: SchemaCheck
    downlink: Downlink | None
    delivery_guarantee: DeliveryGuarantee | None = None


@dataclass(frozen=True, slots=True)
class Route:
    """A subscription: events that match `filter` go to the channel `destination`.

    `interest` is what the reader there announced that it handles (None: unknown): of what matches, the rest
    is not forwarded. See `eventplane.interest`. `delivery_guarantee` is what the route declares (None:
    nothing); `eventplane.guarantee` decides what a delivery has.
    """

    name: str
    filter: Filter
    destination: str
    place: Place
    interest: Filter | None = None
    delivery_guarantee: DeliveryGuarantee | None = None


@dataclass(frozen=True, slots=True)
class Contract:
    """A checked contract. `version` is the content hash of its `canonical` form."""

    name: str
    version: str
    canonical: bytes = field(repr=False)
    participants: Mapping[str, Participant] = field(hash=False)
    event_types: Mapping[str, EventType] = field(hash=False)
    routes: tuple[Route, ...]
    _channels: Mapping[str, Channel] = field(init=False, repr=False, hash=False, compare=False)

    def __post_init__(self) -> None:
        channels = {
            channel.address: channel
            for participant in self.participants.values()
            for channel in participant.channels
        }
        object.__setattr__(self, "_channels", MappingProxyType(channels))

    def channel(self, address: str) -> Channel:
        """The channel called `participant.box`. Raises KeyError for an address no participant has."""
        return self._channels[address]

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The channels of all participants."""
        return tuple(self._channels.values())

    def of_kind(self, kind: ParticipantKind) -> Iterator[Participant]:
        """The participants of one kind."""
        return (each for each in self.participants.values() if each.kind is kind)

    @property
    def device(self) -> Participant:
        """The participant that every device is: its outbox is the uplink, its inbox the downlink."""
        return next(self.of_kind(ParticipantKind.DEVICE))

    def routes_at(self, place: Place) -> tuple[Route, ...]:
        """The routes that the router of `place` decides."""
        return tuple(route for route in self.routes if route.place is place)

    def downlink(self, event_type: str) -> Downlink:
        """How events of `event_type` go down to a device: as the type says, else the device's inbox."""
        declared = self.event_types.get(event_type)
        return (declared and declared.downlink) or self.device.inbox.downlink

    def priority(self, event: Envelope, channel: Channel) -> Priority:
        """How urgent `event` is: what its type says, else its severity, else the `channel` it came from.

        The type goes first: what the operator decided for it, no producer can overrule with a number.
        """
        declared = self.event_types.get(event.type)
        if declared and declared.priority:
            return declared.priority
        severity = event.attributes.get("severitynumber")
        # The envelope has checked that it is an Integer.
        return channel.priority if severity is None else Priority(priority_of(int(severity)))
