"""The durable store in front of everything that leaves the device (`edge.spool.store`).

Here are the values that go into it and come out of it. Times are milliseconds of the uptime clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from eventplane.contract import Downlink
from eventplane.reasons import Outcome

if TYPE_CHECKING:
    from eventplane.downlink.device import StateVersion

BEFORE_EVERYTHING: Final = -(1 << 62)
"""Lower than any sequence: where a cursor starts. Salvaged events have negative sequences."""


class StoredEvent(NamedTuple):
    """An event to keep until each of `destinations` has it; `rank` 0 goes first.

    `destinations` has for each address when the delivery expires (None: never). `key` is
    `eventplane.device_reports.key_digest` of the event. `positions` are its numbers by counter of an ordered
    inbox (`eventplane.ordering`), which the event carries too.
    """

    sequence: int
    rank: int
    json: str
    destinations: Mapping[str, int | None]
    key: bytes
    positions: Mapping[str, int] = MappingProxyType({})


class Delivery(NamedTuple):
    """One event for one destination."""

    destination: str
    rank: int
    sequence: int


class Size(NamedTuple):
    """The room of events in the spool: `bytes` of the file, pending `deliveries`."""

    bytes: int
    deliveries: int

    def plus(self, other: Size) -> Size:
        """Return both together."""
        return Size(self.bytes + other.bytes, self.deliveries + other.deliveries)

    def minus(self, other: Size) -> Size:
        """Return what is left without `other`."""
        return Size(self.bytes - other.bytes, self.deliveries - other.deliveries)

    def covers(self, other: Size) -> bool:
        """Return whether neither of `other` is more."""
        return self.bytes >= other.bytes and self.deliveries >= other.deliveries


class PendingDelivery(NamedTuple):
    """A pending delivery with the event's text; it was stored at `stored_ms`."""

    delivery: Delivery
    json: str
    expires_ms: int | None
    stored_ms: int


class Discard(NamedTuple):
    """Ends `delivery` without a delivery: `outcome` is EXPIRED, DROPPED or DEAD_LETTERED, `reason` a word."""

    delivery: Delivery
    outcome: Outcome
    reason: str


@dataclass(frozen=True, slots=True)
class LossReport:
    """`count` deliveries that were discarded since the last closing; `ranges` of their sequences."""

    destination: str
    outcome: Outcome
    reason: str
    count: int
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """The events stored for a destination since the last closing: `count` events from `first` to `last`.

    For a count of 0, `last` is the newest that was ever stored for it (0: none) and `first` the next.
    `digest` is the sum of their `eventplane.device_reports.event_digest` modulo 2**128, so it does not depend
    on the order; None where an earlier version counted some of them by another rule.
    """

    destination: str
    first: int
    last: int
    count: int
    digest: int | None


class DeviceState(NamedTuple):
    """The device's state of a `key` of one `kind`: the newest that the cloud desires.

    `state_version` decides what is newer. `json` is a state's event, '' when it is deleted, and for commands.
    `rank` and `sequence` are those of the delivery that was made last, `sequence` 0 for none and negative
    where the event was salvaged: then it is unknown whether it was delivered.
    """

    kind: str
    key: str
    state_version: StateVersion
    rank: int
    sequence: int
    json: str

    @property
    def is_live(self) -> bool:
        """Return whether there is a state."""
        return self.kind == Downlink.STATE and not self.state_version.is_deleted


class SpoolOrigin(NamedTuple):
    """The origin of the spool. A recovered one has `salvaged` events of `lost_epoch`, as far as known.

    A created one whose `damage` is not '' took the place of another thing's.

    At most `lost` events of that epoch are lost (None: unknown), with numbers within `lost_ranges`.
    """

    kind: Literal["created", "resumed", "recovered", "without_disk"]
    damage: str = ""
    salvaged: int = 0
    lost_epoch: str = ""
    lost: int | None = 0
    lost_ranges: tuple[tuple[int, int], ...] = ()
