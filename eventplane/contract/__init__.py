"""The contract: the one declaration of participants, channels, event types and routes, as frozen values.

`compile_contract` turns the document people write into a `Contract`; `Contract.canonical` is its compiled
form, which the device image, the functions and the audit load with `load_compiled`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from eventplane.attributes import priority_of
from eventplane.envelope import Envelope
from eventplane.filters import Any as AnyOf
from eventplane.filters import Filter

if TYPE_CHECKING:
    from eventplane.contract.canonical import ContractError, ContractFormatError, Problem, load_compiled
    from eventplane.contract.compiler import check_compiled, compile_contract, contract_document
    from eventplane.contract.mapping import TopicMapping

__all__ = [
    "ContractError",
    "ContractFormatError",
    "Problem",
    "check_compiled",
    "compile_contract",
    "contract_document",
    "load_compiled",
]
"""What this package has besides the names below, from its modules."""


ALL_PERCENT: Final = 100
"""A share of all events, percent."""

REPLIES: Final = "replies"
"""The box of the channel that brings replies to a participant that asks."""


class ParticipantKind(StrEnum):
    """The home of a participant: the device itself, a service on it, or a service in the cloud."""

    DEVICE = "device"
    DEVICE_SERVICE = "device_service"
    CLOUD_SERVICE = "cloud_service"

    @property
    def is_on_device(self) -> bool:
        """Return whether such a participant sends and receives on a device."""
        return self is not ParticipantKind.CLOUD_SERVICE


class Place(StrEnum):
    """The place of a router."""

    DEVICE = "device"
    CLOUD = "cloud"

    @property
    def where(self) -> str:
        """Return the place in words."""
        return "on the device" if self is Place.DEVICE else "in the cloud"


class Transport(StrEnum):
    """The transports of the plane itself: the home's Mosquitto, AWS IoT Core, SQS queues.

    Packages add others for cloud services, each under a name of its own (docs/how-to/protocols.md).
    """

    MQTT = "mqtt"
    IOT_CORE = "iot_core"
    SQS = "sqs"
    SQS_FIFO = "sqs_fifo"


class DeliveryGuarantee(StrEnum):
    """The reliability of a delivery."""

    AT_LEAST_ONCE = "at_least_once"
    BEST_EFFORT = "best_effort"


class Priority(StrEnum):
    """The order of delivery among priorities: `rank` 0 is first."""

    URGENT = "urgent"
    NORMAL = "normal"
    LOW = "low"

    @property
    def rank(self) -> int:
        return _RANKS[self]


_RANKS = {Priority.URGENT: 0, Priority.NORMAL: 1, Priority.LOW: 2}


class Ordering(StrEnum):
    """The order that a channel keeps: none, or the order of sending within one source."""

    NONE = "none"
    SOURCE = "source"


class WhenFull(StrEnum):
    """The reaction of a full device store to a new event: refuse it, or drop the oldest."""

    REFUSE = "refuse"
    DROP_OLDEST = "drop_oldest"


class SchemaCheck(StrEnum):
    """The payloads that the cloud's router checks: none, those of a known schema version, or all."""

    NONE = "none"
    KNOWN = "known"
    STRICT = "strict"


class Downlink(StrEnum):
    """The kind of delivery down to a device: of a state only the newest counts, each command is delivered."""

    STATE = "state"
    COMMAND = "command"


class Forward(StrEnum):
    """The events of its uplink routes that a device sends: all, or those that the cloud is known to want."""

    ALL = "all"
    WANTED = "wanted"


class AddressScope(StrEnum):
    """The devices that a cloud service may address: one at a time, or any, groups and all at once."""

    ONE = "one"
    EVERYONE = "everyone"


class WebhookMode(StrEnum):
    """The form of an event in a webhook (CloudEvents HTTP binding): all as body, or attributes as headers."""

    STRUCTURED = "structured"
    BINARY = "binary"


@dataclass(frozen=True, slots=True)
class Webhook:
    """The posting of an inbox's events to an HTTPS endpoint, whose URL is a setting of each environment.

    Args:
        timeout_s: seconds that one attempt may take.
        requests_per_minute: the most requests to the endpoint in a minute; None: no limit.
    """

    mode: WebhookMode
    timeout_s: int
    requests_per_minute: int | None = None


@dataclass(frozen=True, slots=True)
class Channel:
    """One outbox or inbox, named from its participant's side.

    Args:
        transport: a `Transport`, or the name of a protocol that a package adds.
        expiry_s: seconds for which an event is worth delivering; None: no limit.
        batching_delay_ms: milliseconds that an event may wait for a batch.
        retention_s: seconds for which a queue keeps an event.
        give_up_after_s: seconds after its first failure for which an event is tried; None: as `retries` says.
        max_receives: receives that end without a settlement before an event is given up.
        receipts: whether the reader confirms each event after handling it, an outbox's after storing it.
        receipts_percent: the share of the events that a reader in the cloud confirms.
        when_full: what happens to new events when the device's store has no room for their priority.
        webhook: how its events are posted to an endpoint; None: a program reads the queue.
        downlink: how a device's inbox delivers events of types that declare nothing.
        forward: which events a device's outbox takes.
        events_per_message: the most events in one message of an inbox queue (`eventplane.sqs_binding`).
    """

    participant: str
    box: str
    transport: Transport | str
    delivery_guarantee: DeliveryGuarantee
    priority: Priority
    ordering: Ordering
    batching_delay_ms: int
    retention_s: int
    max_receives: int
    expiry_s: int | None = None
    receipts: bool = False
    when_full: WhenFull = WhenFull.REFUSE
    webhook: Webhook | None = None
    downlink: Downlink = Downlink.COMMAND
    forward: Forward = Forward.ALL
    events_per_message: int = 1
    give_up_after_s: int | None = None
    receipts_percent: int = ALL_PERCENT

    @property
    def address(self) -> str:
        """Return the name that routes use: `participant.box`."""
        return f"{self.participant}.{self.box}"

    @property
    def asks_for_receipts(self) -> bool:
        """Return whether its reader in the cloud leaves receipts in a queue for the archive."""
        is_queue = self.transport in (Transport.SQS, Transport.SQS_FIFO)
        return self.receipts and self.box == "inbox" and is_queue and self.webhook is None

    @property
    def is_added_protocol(self) -> bool:
        """Return whether a protocol that a package adds carries the channel."""
        return not isinstance(self.transport, Transport)


@dataclass(frozen=True, slots=True)
class Participant:
    """A sender through `outbox` and receiver through `inbox`: the device, a service on it or in the cloud.

    Args:
        sends: the types of its events, a family of types where one ends in `.*`; None: not declared.
        retired: whether it only empties its queues; no route leads to it.
        asks: the types of its requests, as in `sends`.
        replies: the channel for replies to its requests; None where it asks nothing.
        may_subscribe: the filter of the events that it may subscribe to; None: those of its routes.
        may_address: the devices that it may send to, or the names of groups: these, and each device in them.
        mappings: what its messages on topics of its own become.
    """

    name: str
    kind: ParticipantKind
    description: str
    inbox: Channel
    outbox: Channel
    sends: tuple[str, ...] | None = None
    retired: bool = False
    asks: tuple[str, ...] = ()
    replies: Channel | None = None
    may_subscribe: Filter | None = None
    may_address: AddressScope | tuple[str, ...] = AddressScope.ONE
    mappings: tuple[TopicMapping, ...] = field(default=(), hash=False)

    @property
    def channels(self) -> tuple[Channel, ...]:
        """Return all of its channels."""
        return (self.inbox, self.outbox) if self.replies is None else (self.inbox, self.outbox, self.replies)

    @property
    def named_types(self) -> tuple[str, ...]:
        """Return the types, and families of types, under `sends` and `asks`."""
        return *(self.sends or ()), *self.asks

    def may_send(self, event_type: str) -> bool:
        """Return whether `sends` names the type; a participant without `sends` names none."""
        return names_type(self.sends or (), event_type)

    def may_ask(self, event_type: str) -> bool:
        """Return whether `asks` names the type."""
        return names_type(self.asks, event_type)


def names_type(types: Iterable[str], event_type: str) -> bool:
    """Return whether `types`, families among them, name a type, or all types of a family."""
    return any(
        event_type == each or (each.endswith(".*") and event_type.startswith(each[:-1])) for each in types
    )


@dataclass(frozen=True, slots=True)
class EventType:
    """One `type` of event.

    Args:
        priority: None: the event's severity decides, or its channel.
        schemas: the versions of the payload by `$id`, which an event names in `dataschema`; an event that
            names none has the first.
        downlink: how its events go down to devices; None: as the device's inbox declares.
        delivery_guarantee: that of its events where their route declares none.
    """

    name: str
    description: str
    schemas: Mapping[str, Mapping[str, Any]] = field(hash=False)
    priority: Priority | None = None
    schema_check: SchemaCheck = SchemaCheck.NONE
    downlink: Downlink | None = None
    delivery_guarantee: DeliveryGuarantee | None = None


@dataclass(frozen=True, slots=True)
class Route:
    """A subscription: events that match `filter` go to the channel `destination`.

    Args:
        interest: what the reader there announced that it handles; other events are not forwarded
            (`eventplane.interest`). None: unknown.
        delivery_guarantee: what the route declares; `eventplane.guarantee` decides that of a delivery.
    """

    name: str
    filter: Filter
    destination: str
    place: Place
    interest: AnyOf | None = None
    delivery_guarantee: DeliveryGuarantee | None = None


@dataclass(frozen=True, slots=True)
class Contract:
    """A checked contract. `version` is the content hash of its `canonical` form."""

    name: str
    version: str
    canonical: bytes = field(repr=False, hash=False)
    participants: Mapping[str, Participant] = field(hash=False)
    event_types: Mapping[str, EventType] = field(hash=False)
    routes: tuple[Route, ...] = field(hash=False)
    _channels: Mapping[str, Channel] = field(init=False, repr=False, hash=False, compare=False)

    def __post_init__(self) -> None:
        channels = {
            channel.address: channel
            for participant in self.participants.values()
            for channel in participant.channels
        }
        object.__setattr__(self, "_channels", MappingProxyType(channels))

    def channel(self, address: str) -> Channel:
        """Return the channel `participant.box`. Raises KeyError for an address that no participant has."""
        return self._channels[address]

    @property
    def channels(self) -> tuple[Channel, ...]:
        """Return the channels of all participants."""
        return tuple(self._channels.values())

    @property
    def mappings(self) -> tuple[TopicMapping, ...]:
        """Return the mappings of all participants."""
        return tuple(each for participant in self.participants.values() for each in participant.mappings)

    def of_kind(self, kind: ParticipantKind) -> Iterator[Participant]:
        """Return the participants of one kind."""
        return (each for each in self.participants.values() if each.kind is kind)

    @property
    def device(self) -> Participant:
        """Return the participant of all devices: its outbox is the uplink, its inbox the downlink."""
        return next(self.of_kind(ParticipantKind.DEVICE))

    def routes_at(self, place: Place) -> tuple[Route, ...]:
        """Return the routes that the router of `place` decides."""
        return tuple(route for route in self.routes if route.place is place)

    def downlink(self, event_type: str) -> Downlink:
        """Return how events of `event_type` go down: as the type declares, else the device's inbox."""
        declared = self.event_types.get(event_type)
        return (declared and declared.downlink) or self.device.inbox.downlink

    def priority(self, event: Envelope, channel: Channel) -> Priority:
        """Return the priority of `event`: that of its type, else of its severity, else of its `channel`.

        The type is first, so that no producer overrules the operator with a number.
        """
        declared = self.event_types.get(event.type)
        if declared and declared.priority:
            return declared.priority
        severity = event.attributes.get("severitynumber")
        # The envelope has checked that it is an Integer.
        return channel.priority if severity is None else Priority(priority_of(int(severity)))


def __getattr__(name: str) -> Any:
    """Load what reads or compiles contracts, which a program that only has one need not hold."""
    if name not in __all__:
        raise AttributeError(name)
    from eventplane.contract import canonical

    if hasattr(canonical, name):
        return getattr(canonical, name)
    from eventplane.contract import compiler

    return getattr(compiler, name)
