"""The account of an event: its fate at each inbox that it is for, in the words that every screen uses.

A fact is an account too, by one record, dead letter or observation. `accounts` joins the facts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, Self

from eventplane.contract import Contract
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.envelope import THE_PLANE, Sender
from eventplane.names import DOWNLINK, PLANE, SUBSCRIBERS
from eventplane.reader_receipts import SETTLED_BEFORE
from eventplane.reasons import REDRIVE, REPLAY, Outcome

EVERY_INBOX: Final = ""
"""The inbox of an account of the event as a whole: of each inbox, or of an event that is for none."""


class Fate(StrEnum):
    """The fate of an event at an inbox, and what the word `means`. The best is first."""

    means: str

    def __new__(cls, word: str, means: str) -> Self:
        member = str.__new__(cls, word)
        member._value_ = word
        member.means = means
        return member

    HANDLED = "handled", "The inbox's reader handled it, and a record shows that."
    GIVEN_UP = "given up", "It was in the inbox, and its reader, or its queue, made a dead letter of it."
    IN_INBOX = "in the inbox", "It was put into the inbox. No record shows what its reader did with it."
    REFUSED = "refused", "A router or the device refused it, with the reason; it never came into the inbox."
    EXPIRED = "expired", "Its time to live ended before it could be delivered."
    DROPPED = "dropped", "Not delivered by a declared policy: best effort, no interest, or no route."
    LOST = "lost", "Accepted, and proven to be nowhere: in no inbox and no queue, without another end."
    WAITING = "waiting", "Accepted, without an end yet: in the spool, in a queue, or on its way between them."
    UNKNOWN = "unknown", "No record shows what became of it; what is missing is named."


ENDED_AS_DECLARED: Final = frozenset({Fate.HANDLED, Fate.EXPIRED, Fate.DROPPED})
"""The ends that the contract or the event's sender asked for."""

ENDED_OTHERWISE: Final = frozenset({Fate.GIVEN_UP, Fate.REFUSED, Fate.LOST})
"""The ends that somebody has to look after. Of all other fates the end is not known."""

OPEN: Final = frozenset({Fate.WAITING, Fate.UNKNOWN})
"""What may still become something else by itself."""

_ANEW: Final = (REPLAY, REDRIVE)
"""Why an event is put into an inbox once more, whatever its reader made of it before."""

_BEST_FIRST: Final = {fate: rank for rank, fate in enumerate(Fate)}


@dataclass(frozen=True, slots=True)
class Account:
    """The `fate` of an event at `inbox`, a channel's address.

    `by` is who handled, refused or gave it up, or who let it expire or dropped it where that was the inbox's
    reader; for `waiting` it is the place. `why` is the reason or policy, what it waits for, or what is
    missing.
    `at_ms` is since when, Unix milliseconds; None: as seen now. `str()` is the account in words.
    """

    inbox: str
    fate: Fate
    by: str = ""
    why: str = ""
    at_ms: int | None = None

    def __str__(self) -> str:
        place = f" {'in' if self.fate is Fate.WAITING else 'by'} {self.by}" if self.by else ""
        return f"{self.fate}{place}{f': {self.why}' if self.why else ''}"

    def document(self) -> dict[str, Any]:
        """Return it as JSON; `inbox` is null for every inbox."""
        return {
            "inbox": self.inbox or None,
            "fate": self.fate.value,
            "by": self.by or None,
            "why": self.why or None,
            "at_ms": self.at_ms,
        }

    @property
    def is_by_reader(self) -> bool:
        """True if it is the end that the inbox's reader, or the inbox's queue, gave the event."""
        return self.fate in (Fate.HANDLED, Fate.GIVEN_UP) or (
            self.fate in (Fate.EXPIRED, Fate.DROPPED) and bool(self.by)
        )


OF_ROUTER: Final[dict[str, Fate]] = {
    Outcome.DELIVERED: Fate.IN_INBOX,
    Outcome.DEAD_LETTERED: Fate.REFUSED,
    Outcome.EXPIRED: Fate.EXPIRED,
    Outcome.DROPPED: Fate.DROPPED,
    Outcome.UNROUTED: Fate.DROPPED,
    Outcome.NO_INTEREST: Fate.DROPPED,
}
"""What a router's outcome means, and below that of an inbox's reader."""

OF_READER: Final[dict[str, Fate]] = {
    **OF_ROUTER,
    Outcome.DELIVERED: Fate.HANDLED,
    Outcome.DEAD_LETTERED: Fate.GIVEN_UP,
}


def by_router(record: Mapping[str, Any]) -> Account:
    """Return the account of an event by a record of the ledger."""
    outcome, reason = record["outcome"], record["reason"] or ""
    if outcome == Outcome.DELIVERED:
        reason = REDRIVE if record.get("put_back_by") else reason if reason in _ANEW else ""
    by = f"the router of {record['entered_by']}" if outcome == Outcome.DEAD_LETTERED else ""
    return _of_record(record, record["destination"], OF_ROUTER, by, reason)


def by_reader(record: Mapping[str, Any]) -> Account:
    """Return the account of an event by a record of the handovers."""
    inbox = record["channel"]
    return _of_record(record, inbox, OF_READER, reader_of(inbox), record["reason"] or "")


def by_letter(record: Mapping[str, Any], down: str = "") -> Account | None:
    """Return the account of a dead letter's original by a record of the ledger about the letter.

    None for a letter that came nowhere, and for one of the plane or of a device: the decision about the
    original has a record of its own, or the letter is in the tap. `down` is the devices' inbox, which the
    downlink reads, if the original came there.
    """
    writer = record.get("sender") or PLANE
    is_letter = record["type"] == DEAD_LETTER_TYPE and record["outcome"] == Outcome.DELIVERED
    if not is_letter or writer == PLANE or "/" in writer:
        return None
    inbox = down if down and writer == DOWNLINK else f"{writer}.inbox"
    return Account(
        inbox, Fate.GIVEN_UP, writer, record.get("dead_letter_reason") or "", record["decided_at_ms"]
    )


def by_dead_letter(
    contract: Contract, writer: Sender, channel: str, route: str | None, why: str, at_ms: int | None
) -> Account | None:
    """Return the account of a dead letter's original, which came over `channel`, by the letter.

    None where its `writer` cannot know it: each knows its own inbox, and a device those on it.
    """
    owner, _, box = channel.partition(".")
    reader = DOWNLINK if owner == contract.device.name else owner
    if box == "inbox":
        participant = contract.participants.get(owner)
        is_known = participant is not None and participant.kind.is_on_device
        if is_known if writer.device else writer.service == reader:
            return Account(inbox_of(channel, route), Fate.GIVEN_UP, reader, why, at_ms)
        return None
    if writer != THE_PLANE and not writer.device and writer.service != owner:
        return None
    destination = next((each.destination for each in contract.routes if each.name == route), EVERY_INBOX)
    by = writer.device or f"the router of {channel}"
    return Account(inbox_of(destination, route), Fate.REFUSED, by, why, at_ms)


def accounts(
    due: Iterable[str], facts: Iterable[Account], missing: str = "no record of it"
) -> tuple[Account, ...]:
    """Return the account of each inbox that is `due` the event or that a fact names, by inbox.

    Where no fact says anything of an inbox, its account is unknown for what is `missing`. Where there is no
    inbox at all, one account is of the event as a whole.
    """
    facts = list(facts)
    inboxes = {*due, *(each.inbox for each in facts)} - {EVERY_INBOX}
    return tuple(
        _joined(each, [fact for fact in facts if fact.inbox in (each, EVERY_INBOX)], missing)
        for each in sorted(inboxes) or [EVERY_INBOX]
    )


def _joined(inbox: str, facts: Iterable[Account], missing: str) -> Account:
    # What a reader ended is ended, until the event is put into its inbox anew.
    anew = [each.at_ms or 0 for each in facts if each.fate is Fate.IN_INBOX and each.why in _ANEW]
    ended = [
        each
        for each in facts
        if each.is_by_reader
        and (each.fate is Fate.HANDLED or each.at_ms is None or each.at_ms >= max(anew, default=0))
    ]
    others = [each for each in facts if not each.is_by_reader]
    # A second copy may fail or expire: what is in the inbox is there.
    best = min(ended or others, key=_rank, default=Account(inbox, Fate.UNKNOWN, why=missing))
    return best if best.inbox == inbox else replace(best, inbox=inbox)


def _rank(fact: Account) -> tuple[object, ...]:
    """The best first, of equal ones the last word."""
    # What was settled before may have been given up then.
    is_again = fact.why == SETTLED_BEFORE
    return is_again, _BEST_FIRST[fact.fate], fact.at_ms is not None, -(fact.at_ms or 0), fact.by, fact.why


def _of_record(
    record: Mapping[str, Any], address: str | None, fates: Mapping[str, Fate], by: str, why: str
) -> Account:
    inbox, outcome = inbox_of(address or EVERY_INBOX, record.get("route")), record["outcome"]
    if (fate := fates.get(outcome)) is None:
        return Account(inbox, Fate.UNKNOWN, why=f"recorded as {outcome}, by a newer version")
    return Account(inbox, fate, by, why, record["decided_at_ms"])


def reader_of(inbox: str) -> str:
    """Return the participant whose inbox it is."""
    return inbox.partition(".")[0]


def inbox_of(address: str, route: str | None) -> str:
    """Subscribed endpoints share an inbox, and are told apart by their routes."""
    return f"{address} {route}" if reader_of(address) == SUBSCRIBERS and route else address
