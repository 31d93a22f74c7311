"""The stations of an event's way, as the archive's records and the queues' messages tell them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eventplane.envelope import parse_event
from eventplane.errors import EnvelopeError
from eventplane.reasons import Outcome
from eventplane.replay import REDRIVE, REPLAY
from eventplane.values import timestamp_ms
from operations.archive import Record
from operations.letters import Letter


@dataclass(frozen=True, slots=True)
class Station:
    """What happened to the event at `at_ms` (Unix milliseconds): `what`, `where`, and the `facts`."""

    at_ms: int
    where: str
    what: str
    facts: Mapping[str, Any]

    def document(self) -> dict[str, Any]:
        """The station as JSON."""
        return {"at_ms": self.at_ms, "where": self.where, "what": self.what, **self.facts}


def recorded(tap: Record) -> Station | None:
    """When its source recorded the event, if it says so."""
    try:
        time = parse_event(tap["event"]).attributes.get("recordedtime")
    except EnvelopeError:
        return None
    if time is None:
        return None
    return Station(timestamp_ms(str(time)), "device", "recorded", {"device": tap["client_id"]})


def accepted(tap: Record) -> Station:
    """What IoT Core took from a device."""
    facts = {
        "device": tap["client_id"],
        "topic": tap["topic"],
        "refusal": tap["refusal"],
        "archived_at_ms": tap["archived_at_ms"],
        "message": f"{tap['message_id']}.{tap['index']}",
    }
    return Station(
        tap["accepted_at_ms"], "IoT Core", "accepted" if tap["event"] else "accepted, no event", facts
    )


def reported(tap: Record, letter: Letter) -> Station:
    """A dead letter that the device sent of the event."""
    facts = {
        "device": tap["client_id"],
        "reason": letter.reason,
        "detail": letter.detail,
        "channel": letter.channel,
        "letter": letter.id,
    }
    return Station(tap["accepted_at_ms"], "IoT Core", "dead letter of the device", facts)


def decided(record: Record, *, is_letter: bool) -> Station:
    """Return one decision of a router, of the replay, or of an operator who redrove the event."""
    facts = {name: record[name] for name in ("route", "destination", "reason", "attempt", "priority")}
    facts |= {"entered_by": record["entered_by"], "entered_at_ms": record["entered_at_ms"]}
    facts |= {"contract": record["contract_version"], "message": record["message_id"]}
    outcome = str(record["outcome"])
    again = record["reason"] in (REPLAY, REDRIVE)
    where = record["reason"] if again else f"router of {record['entered_by']}"
    return Station(
        record["decided_at_ms"], where, f"its dead letter {outcome}" if is_letter else outcome, facts
    )


def waiting(letter: Letter) -> Station:
    """A message in a queue that carries the event."""
    facts = {
        "reason": letter.reason,
        "detail": letter.detail,
        "channel": letter.channel,
        "attempt": letter.attempt,
        "message": letter.id,
    }
    return Station(letter.since_ms, letter.place, "waits since", facts)


FINAL = frozenset(Outcome) - {Outcome.UNROUTED}
"""What can become of an event on a route."""
