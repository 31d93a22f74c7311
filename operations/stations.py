"""The stations of an event's way, as the archive's records and the queues' messages tell them."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

from eventplane.account import Account, Fate, by_letter, by_reader, by_router
from eventplane.contract import Contract
from eventplane.downlink.device import Acknowledgement
from eventplane.envelope import parse_event
from eventplane.errors import EnvelopeError
from eventplane.reasons import REDRIVE, REPLAY
from eventplane.values import timestamp_ms
from operations.archive import Record
from operations.letters import Letter


@dataclass(frozen=True, slots=True)
class Station:
    """A step of the event at `at_ms` (Unix milliseconds): `what`, `where`, and the `facts`.

    `account` is the fact for the account of an inbox of the event, None where it is none. `step` is the word
    for it on the way, '' beside the way; `file` is the object of the archive that has the record.
    """

    at_ms: int
    where: str
    what: str
    facts: Mapping[str, Any]
    account: Account | None = None
    step: str = ""
    file: str | None = None

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
    facts = {"device": tap["client_id"]}
    return Station(
        timestamp_ms(str(time)), "device", "recorded", facts, step="stored", file=tap.get("archive_file")
    )


def accepted(tap: Record) -> Station:
    """Return the step at which IoT Core took the event from a device."""
    facts = {
        "device": tap["client_id"],
        "topic": tap["topic"],
        "refusal": tap["refusal"],
        "archived_at_ms": tap["archived_at_ms"],
        "message": f"{tap['message_id']}.{tap['index']}",
    }
    what = "accepted" if tap["event"] else "accepted, no event"
    file = tap.get("archive_file")
    return Station(tap["accepted_at_ms"], "IoT Core", what, facts, step="sent", file=file)


def reported(tap: Record, letter: Letter, contract: Contract) -> Station:
    """A dead letter that the device sent of the event."""
    facts = {"device": tap["client_id"], **_why(letter), "letter": letter.id}
    account, file = letter.account(contract), tap.get("archive_file")
    return Station(tap["accepted_at_ms"], "IoT Core", "dead letter of the device", facts, account, file=file)


def decided(record: Record) -> Station:
    """Return one decision of a router, of the replay, or of an operator who redrove the event."""
    account = by_router(record)
    return _decided(record, account.fate, account)


def told(record: Record, reached: Container[str], contract: Contract) -> Station:
    """Return one decision about a dead letter of the event, which had `reached` these inboxes."""
    down = contract.device.inbox.address
    account = by_letter(record, down if down in reached else "")
    is_known = account is not None and account.inbox in reached
    return _decided(record, f"its dead letter {by_router(record).fate}", account if is_known else None)


def _decided(record: Record, what: str, account: Account | None) -> Station:
    again = record["reason"] in (REPLAY, REDRIVE)
    facts = {name: record[name] for name in ("route", "destination", "reason")}
    facts |= {"of": record.get("dead_letter_reason"), "attempt": record["attempt"]}
    facts |= {name: record[name] for name in ("priority", "entered_by", "entered_at_ms")}
    facts |= {"contract": record["contract_version"], "message": record["message_id"]}
    where = record["reason"] if again else f"router of {record['entered_by']}"
    step = "routed" if account and account.fate is Fate.IN_INBOX else ""
    return Station(record["decided_at_ms"], where, what, facts, account, step, record.get("archive_file"))


def handed_over(record: Record) -> Station:
    """Return how the reader of an inbox ended the event: a webhook's endpoint, or a program."""
    account = by_reader(record)
    facts = {"route": record.get("route"), "destination": record["channel"]}
    facts |= {name: record.get(name) for name in ("reason", "status", "attempt")}
    facts |= {"contract": record["contract_version"], "message": record["message_id"]}
    where = f"reader of {record['channel']}"
    what = f"taken by {account.by}" if account.fate is Fate.HANDLED else account.fate
    step = "taken" if account.fate is Fate.HANDLED else ""
    return Station(record["decided_at_ms"], where, what, facts, account, step, record.get("archive_file"))


def at_home(account: Account, file: str, device: str) -> Station | None:
    """Return what happened at an inbox in the home of `device`, at the latest; None if unknown."""
    if account.at_ms is None:
        return None
    what = {Fate.HANDLED: f"taken by {account.by}", Fate.IN_INBOX: "handed to the broker"}
    facts = {"device": device, "inbox": account.inbox, "reason": account.why or None}
    where = f"home of {device}, at the latest"
    step = "rang" if account.fate is Fate.HANDLED else ""
    return Station(account.at_ms, where, what.get(account.fate, account.fate), facts, account, step, file)


def answered(tap: Record, answer: Acknowledgement) -> Station:
    """Return the answer of a device to an event that came down; no account, as any device can write it."""
    device = tap["client_id"]
    facts = {"device": device, "reason": answer.reason or None, "key": answer.key}
    what, at_ms = f"{answer.result} by {device}", tap["accepted_at_ms"]
    return Station(at_ms, f"home of {device}", what, facts, file=tap.get("archive_file"))


def waiting(letter: Letter, contract: Contract) -> Station:
    """A message in a dead-letter queue that carries the event."""
    facts = {**_why(letter), "attempt": letter.attempt, "message": letter.id}
    return Station(letter.since_ms, letter.place, "waits since", facts, letter.account(contract))


def _why(letter: Letter) -> dict[str, Any]:
    return {"reason": letter.reason, "detail": letter.detail, "channel": letter.channel}
