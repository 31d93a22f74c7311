"""What the forwarder says of itself, as events. Pure: what to say, when and under which id are parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from edge.spool import Birth, DiscardTally, Statement
from eventplane.device_reports import DISCARDED, HEARTBEAT, MANIFEST, REPORT_PREFIX, STARTED, forwarder_source
from eventplane.envelope import Envelope, EnvelopeError, parse_event, write_event


class NotStored(NamedTuple):
    """Events that never got a number: refused, or given up by a best-effort channel."""

    channel: str
    type: str
    reason: str


@dataclass(frozen=True, slots=True)
class Heading:
    """The attributes of a report of the device `thing`: `number` makes its id within the spool's `epoch`."""

    thing: str
    epoch: str
    number: int
    time: str

    def write(self, type: str, data: Mapping[str, Any]) -> Envelope:
        """The event."""
        attributes = {
            "id": f"{self.epoch}-{self.number}",
            "source": forwarder_source(self.thing),
            "type": type,
            "time": self.time,
        }
        return write_event(attributes, data)


def started(heading: Heading, birth: Birth) -> Envelope:
    """The store began a new life."""
    data = {
        "birth": birth.kind,
        "epoch": heading.epoch,
        "damage": birth.damage,
        "salvaged": birth.salvaged,
        "lost_epoch": birth.lost_epoch,
    }
    return heading.write(STARTED, data)


def discarded(
    heading: Heading, tallies: Sequence[DiscardTally], not_stored: Mapping[NotStored, int]
) -> Envelope:
    """What was not delivered, and what was not even taken, since the last such report."""
    deliveries = [
        {
            "destination": each.destination,
            "outcome": each.outcome.value,
            "reason": each.reason,
            "count": each.count,
            "ranges": each.ranges,
        }
        for each in tallies
    ]
    counted = [{**each._asdict(), "count": count} for each, count in not_stored.items()]
    return heading.write(DISCARDED, {"deliveries": deliveries, "not_stored": counted})


def manifest(
    heading: Heading, statements: Sequence[Statement], acknowledged_to: Mapping[str, int]
) -> Envelope:
    """Return the event that states what was stored since the last manifest, also where that is nothing.

    `acknowledged_to` has for each destination the number up to which no delivery is pending
    (`Spool.acknowledged_to`); a destination that is not in it is stated without one.
    """
    stated = [
        {
            "destination": each.destination,
            "first": each.first,
            "last": each.last,
            "count": each.count,
            "digest": f"{each.digest:032x}",
            **(
                {"acknowledged_to": acknowledged_to[each.destination]}
                if each.destination in acknowledged_to
                else {}
            ),
        }
        for each in statements
    ]
    return heading.write(MANIFEST, {"epoch": heading.epoch, "statements": stated})


def heartbeat(heading: Heading, interval_s: float, figures: Mapping[str, Any]) -> Envelope:
    """The device is there, and how it is."""
    return heading.write(HEARTBEAT, {"interval_s": interval_s, "figures": figures})


def is_statement(json: str) -> bool:
    """Whether an event of the spool is a report that stands for others, and cannot be made again."""
    # Reading every event for this would cost more than it gives.
    if REPORT_PREFIX not in json:
        return False
    try:
        return parse_event(json).type in (STARTED, DISCARDED, MANIFEST)
    except EnvelopeError:
        return False
