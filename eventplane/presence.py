"""The record of a device's presence, and the order of two statements about it."""

from __future__ import annotations

import json
import zlib
from dataclasses import MISSING, asdict, dataclass
from enum import IntEnum, StrEnum
from typing import Final

from eventplane.envelope import parse_event
from eventplane.fields import number, whole
from eventplane.limits import DAY_S
from eventplane.records import Item, RecordKind, Selection, to_attribute
from eventplane.settings import check
from eventplane.traffic import Quota, Traffic

RESET_MS: Final = 30 * 60 * 1_000
"""Statements further apart than this are in the order of their time, milliseconds. IoT Core starts a client's
version numbers anew when it was away for about an hour, and its times are right to two minutes (AWS IoT
Developer Guide, lifecycle events): half that hour tells a new count from a late message."""


class Line(StrEnum):
    """The state of a device's connection to IoT Core."""

    CONNECTED = "connected"
    DISCONNECTED = "disconnected"


@dataclass(frozen=True, slots=True)
class Sighting:
    """A report of IoT Core about a connection, at `at_ms` (Unix milliseconds).

    A connection and its end have the same `version` and `session`. `cause` is IoT Core's word for the end.
    """

    line: Line
    at_ms: int
    version: int
    session: str
    cause: str = ""

    def is_newer_than(self, other: Sighting) -> bool:
        """Return whether this happened later, in whatever order the two came."""
        if abs(self.at_ms - other.at_ms) >= RESET_MS:
            return self.at_ms > other.at_ms
        if self.version != other.version:
            return self.version > other.version
        if self.session != other.session:
            return (self.at_ms, self.session) > (other.at_ms, other.session)
        return self.line is Line.DISCONNECTED and other.line is Line.CONNECTED


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A device's report about itself, received at `at_ms` (Unix milliseconds, by the cloud's clock).

    `epoch` and `sequence` are the device's own numbering; the rest is in seconds.
    """

    at_ms: int
    interval_s: float
    oldest_urgent_s: float = 0.0
    oldest_normal_s: float = 0.0
    epoch: str = ""
    sequence: str = ""

    def is_newer_than(self, other: Heartbeat) -> bool:
        """Return whether the device said this later."""
        if self.epoch and self.epoch == other.epoch:
            return self.sequence > other.sequence
        return self.at_ms > other.at_ms


class QuietReason(StrEnum):
    """Why a connected device is not well: no heartbeat came, or an event has waited there for too long."""

    NO_HEARTBEAT = "no_heartbeat"
    BACKLOG_OLD = "backlog_old"


@dataclass(frozen=True, slots=True)
class Quiet:
    """A device was reported as quiet; its last heartbeat before came at `since_ms` (Unix milliseconds)."""

    reason: QuietReason
    since_ms: int


@dataclass(frozen=True, slots=True)
class Flood:
    """A device was reported as flooding since `since_ms` (Unix milliseconds); `window` is the last window in
    which it sent more than its quota."""

    since_ms: int
    window: int


class Standing(IntEnum):
    """The class of a device in the fleet: one whose notice is `HELD` back as that, one that is away since a
    notice of many `LISTED` it as that.
    """

    CONNECTED = 0
    LOST = 1
    QUIET = 2
    HELD = 3
    LISTED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageLimits:
    """When devices that went are an outage of the fleet, and not each home's own trouble.

    It begins when a `share` of the fleet, and at least `least` devices, went within `within_s` seconds and
    are still away or quiet, and ends when fewer are left.
    """

    share: float = number(0.02, 0.0001, 1, "a share")
    """Share of the fleet that went."""
    least: int = whole(10, 1, 1_000, "devices")
    """Devices that went, at least."""
    within_s: int = whole(300, 60, 3_600, "seconds")
    """Time in which they went."""
    held_s: int = whole(60, 0, 600, "seconds")
    """How long notices are held back meanwhile, and then sent as one."""

    def __post_init__(self) -> None:
        check(self)


OUTAGE: Final = OutageLimits()
"""Ours. Of 10,000 devices that lose their connection once a day, some 35 do so in five minutes, and most are
back within one: 2 % are six times as many."""


@dataclass(frozen=True, kw_only=True)
class PresenceLimits:
    """When something is reported of a device, what floods, and what is an outage of the fleet."""

    disconnected_after_s: int = whole(MISSING, 1, DAY_S, "seconds")
    """A device that reconnects within it was never away."""
    connected_after_s: int = whole(MISSING, 1, DAY_S, "seconds")
    """A device that stays connected for so long is back."""
    # A heartbeat may be a little late.
    quiet_after_heartbeats: float = number(MISSING, 1.1, 10_000, "intervals")
    """Intervals without a heartbeat after which a connected device is quiet."""
    oldest_urgent_s: int = whole(MISSING, 1, DAY_S, "seconds")
    """How long an urgent event may wait on a connected device."""
    oldest_normal_s: int = whole(MISSING, 1, DAY_S, "seconds")
    """How long another event may wait on a connected device."""
    quota: Quota
    """The traffic beyond which a device floods."""
    outage: OutageLimits = OUTAGE
    """When devices that went are an outage of the fleet: it pages, and carers get one notice."""


class Level(IntEnum):
    """A severity; carers are told again when it gets worse, not when it gets a little better."""

    WELL = 0
    QUIET = 1
    DISCONNECTED = 2


@dataclass(frozen=True, slots=True)
class Incident:
    """An incident as carers know it: from the first notice of a problem to the one that all is well again."""

    id: str
    level: Level
    reason: str


@dataclass(frozen=True, slots=True)
class Held:
    """A notice of `phase` about an incident, held back since `at_ms` (Unix milliseconds) to be sent in one of
    many devices."""

    phase: str
    incident: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class PresenceItem:
    """One device. `reported` is what the plane was told last, since `reported_ms` by IoT Core's clock.

    `traffic` is what was counted of it last, if it was loud, by the reports `counted`; `flood` is there while
    it floods.
    `unsent` are events in JSON format that are decided and not yet known to be sent; `held` is the notice
    that is held back, `listed` the incident that was in a notice of many devices, as its end is to be.
    `quiet_at_ms` is when it was reported as quiet last. `revision` counts the
    writes of the stored item (0: there is none), `due_ms` is when it asks to be looked at again. A device
    that `is_gone` was decommissioned: nothing that is heard of it counts.
    """

    device: str
    revision: int = 0
    due_ms: int | None = None
    sighting: Sighting | None = None
    heartbeat: Heartbeat | None = None
    reported: Line | None = None
    reported_ms: int = 0
    quiet: Quiet | None = None
    incident: Incident | None = None
    traffic: Traffic | None = None
    counted: tuple[str, ...] = ()
    flood: Flood | None = None
    unsent: tuple[str, ...] = ()
    held: Held | None = None
    listed: str = ""
    quiet_at_ms: int | None = None
    is_gone: bool = False

    @property
    def level(self) -> Level:
        """The severity by what was reported."""
        if self.reported is Line.DISCONNECTED:
            return Level.DISCONNECTED
        return Level.QUIET if self.quiet else Level.WELL

    @property
    def is_listed(self) -> bool:
        """True if its incident was in a notice of many devices."""
        return self.incident is not None and self.incident.id == self.listed

    @property
    def standing(self) -> tuple[Standing, int] | None:
        """Its class in the fleet, and since when (Unix milliseconds); None for one that was not seen."""
        if self.is_gone or not (self.sighting or self.heartbeat):
            return None
        if self.held:
            return Standing.HELD, self.held.at_ms
        if self.is_listed:
            return Standing.LISTED, self.reported_ms
        if self.sighting and self.sighting.line is Line.DISCONNECTED:
            return Standing.LOST, self.sighting.at_ms
        if self.quiet:
            return Standing.QUIET, self.quiet_at_ms or 0
        # A heartbeat must not cost a write of the index.
        return Standing.CONNECTED, self.sighting.at_ms if self.sighting else 0


def gone(device: str) -> PresenceItem:
    """Return the state of a device that was decommissioned, whatever it was before.

    It is kept: the end of its connection comes later than any deletion, and would make it known anew.
    """
    return PresenceItem(device, is_gone=True)


# The table of presence.

PRESENCE_TABLE: Final = "presence"
"""The table's name, without project and environment."""

INDEX: Final = "due"
"""The index by `bucket` and `due_ms`. It is sparse: what is not due at any time does not stand in it."""

INDEX_KEYS: Final = ("bucket", "due_ms")

STANDING_INDEX: Final = "standing"
"""The index by what a device's state is and since when, to count the fleet and to find notices held back."""

STANDING_KEYS: Final = ("standing", "standing_ms")

INDEXES: Final = {INDEX: INDEX_KEYS, STANDING_INDEX: STANDING_KEYS}
"""The keys of each index, all numbers."""

BUCKETS: Final = 16
"""Shares of the devices, each a partition of the due index. Ours: a partition takes 1,000 writes a second
(DynamoDB Developer Guide), of which a million devices need a tenth. Never change it: what is filed under a
share that is gone would not be found."""

_PLAIN: Final = ("device", "revision", "due_ms", "held", "listed", "quiet_at_ms")
"""The members that are attributes of an item; the others are JSON in `known`, as 0.3.0 has them."""


def bucket_of(device: str) -> int:
    """Return the share that `device` belongs to, from 0 to `BUCKETS` - 1."""
    return zlib.crc32(device.encode("utf-8")) % BUCKETS


def _known(state: PresenceItem) -> str:
    members = asdict(state).items()
    known = {name: each for name, each in members if name not in _PLAIN and each}
    return json.dumps(known, ensure_ascii=False, separators=(",", ":"))


def _upgraded(item: Item) -> Item:
    if known := item.get("known"):
        item = {**item, **to_attribute(json.loads(known["S"]))["M"]}
    for each in item.get("unsent", {"L": ()})["L"]:
        parse_event(each["S"])  # what is damaged must not be found when it is sent, among others
    return item


PRESENCE: Final = RecordKind(
    type=PresenceItem,
    key=("device",),
    derived={
        "bucket": lambda state: None if state.due_ms is None else bucket_of(state.device),
        "standing": lambda state: state.standing and standing_in(state.standing[0], bucket_of(state.device)),
        "standing_ms": lambda state: state.standing and state.standing[1],
        "known": _known,
    },
    written=_PLAIN,
    upgrade=_upgraded,
)
"""How the table keeps its items."""


def due_in(bucket: int, now_ms: int, limit: int) -> Selection:
    """Return the selection of the devices of a share that are due at `now_ms` (Unix ms), the longest first.

    The index lags behind the table: look at a device before believing it.
    """
    partition, sort = INDEX_KEYS
    return Selection(partition, bucket, sort, until=now_ms, index=INDEX, is_consistent=False, limit=limit)


def standing_in(standing: Standing, bucket: int) -> int:
    """Return the partition of the index of standings that has the devices of a share with this `standing`."""
    return BUCKETS * standing + bucket


def standing_between(standing: Standing, bucket: int, since_ms: int, until_ms: int) -> Selection:
    """Return the selection of a share's devices with this `standing` since between two times, Unix ms."""
    partition, sort = STANDING_KEYS
    return Selection(
        partition,
        standing_in(standing, bucket),
        sort,
        until=until_ms,
        since=since_ms,
        index=STANDING_INDEX,
        is_consistent=False,
    )
