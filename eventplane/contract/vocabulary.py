"""The closed sets of words that a contract may use, each as an enumeration (see docs/architecture.md)."""

from __future__ import annotations

from enum import StrEnum


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
