"""Parse an undeliverable message: its events and the reason."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from eventplane.account import EVERY_INBOX, Account, Fate, by_dead_letter, reader_of
from eventplane.attributes import AttributeValue
from eventplane.contract import Contract
from eventplane.dead_letter import DEAD_LETTER_TYPE, REASON_ATTRIBUTE, original_of
from eventplane.envelope import THE_PLANE, Envelope, Sender, parse_event, sender_of
from eventplane.errors import EnvelopeError
from eventplane.filters import Filter
from eventplane.ingest import IngestFrame, parse_frame
from eventplane.reasons import Reason
from eventplane.sqs_binding import ROUTE, hint_of, split
from eventplane.values import whole_number
from operations.names import Claim, names_in
from operations.reading import Message

UNKNOWN: Final = "unknown"
"""What stands for a sender whom nobody knows."""


class LetterKind(StrEnum):
    """The content of a message."""

    EVENT = "event"
    FRAME = "frame"
    PACK = "pack"
    DEAD_LETTER = "dead_letter"
    RULE_FAILURE = "rule_failure"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Letter:
    """One message that somebody has to look after, or a dead letter of the archive.

    `place` is the queue's name, or the archive. `events` are what it carries: several in a device's frame and
    in a message of a packed inbox, none in what is no event, itself and its original in a dead-letter event.
    Of a dead-letter event `reason`,
    `detail`, `channel`, `route`, `attempt` and `original` are what it says; of another message `channel` is
    what its source queue carries. `original` of a rule's failure is what the rule was given. `since_ms`
    (Unix milliseconds) is when it was sent. `original_bytes` is None for an original that is not known.

    `sender` is who sent what it is about, None where nobody knows. In a dead-letter event that is the word of
    `written_by`: the plane itself knows it from the transport, and others can only speak for themselves.
    """

    place: str
    id: str
    since_ms: int
    attempt: int
    kind: LetterKind
    reason: str
    detail: str
    channel: str | None
    route: str | None
    contract_version: str | None
    sender: Sender | None
    written_by: Sender | None
    events: tuple[Envelope, ...]
    original: bytes
    original_bytes: int | None
    body: str

    @property
    def claims(self) -> frozenset[Claim]:
        """The events that it is about, and what has the names of one in an original that is none."""
        names = names_in(self.original)
        return frozenset([each.claim for each in self.events] + ([names] if names else []))

    def is_called(self, id: str) -> bool:
        """Return whether `id` is the message's, or that of an event that it is about."""
        return id == self.id or any(each == id for _, each in self.claims)

    def matches(self, filter: Filter) -> bool:
        """Return whether an event in it passes, judged with the `deadletterreason` that this letter has."""
        reason = {REASON_ATTRIBUTE: self.reason}
        attributes: list[Mapping[str, AttributeValue]] = [each.attributes for each in self.events]
        return any(filter.matches({**each, **reason}) for each in attributes or [{}])

    def account(self, contract: Contract) -> Account | None:
        """Return what became of the event that it is about; None where its writer cannot know that."""
        channel = self.channel or ""
        if self.kind is LetterKind.DEAD_LETTER:
            author = self.written_by or Sender()
            return by_dead_letter(contract, author, channel, self.route, self.reason, self.since_ms)
        if self.kind in (LetterKind.EVENT, LetterKind.PACK) and channel.endswith(".inbox"):
            # As seen now: SQS keeps the time of the first sending.
            return Account(channel, Fate.GIVEN_UP, reader_of(channel), self.reason)
        return Account(EVERY_INBOX, Fate.WAITING, self.place, f"{self.reason}; redrive it", self.since_ms)

    @property
    def is_whole(self) -> bool:
        """True if `original` has all its bytes; a dead letter cuts those of a huge one."""
        return len(self.original) == self.original_bytes


_MOST = 10**12
"""Largest attempt, or number of bytes, that a dead letter is believed."""


def read_letter(message: Message, place: str, channel: str | None) -> Letter:
    """The letter of a message of the queue `place`, whose source queue carries `channel`. Never raises for
    what the message contains."""
    attributes = message["Attributes"]
    common: dict[str, Any] = {
        "place": place,
        "id": message["MessageId"],
        "since_ms": int(attributes["SentTimestamp"]),
        "body": message["Body"],
    }
    inside = _inside(message["Body"])
    if inside.kind is LetterKind.EVENT and (letter := letter_of(inside.events[0], **common)):
        return letter
    return Letter(
        **common,
        attempt=int(attributes["ApproximateReceiveCount"]),
        kind=inside.kind,
        reason=Reason.RULE_FAILED if inside.kind is LetterKind.RULE_FAILURE else Reason.RECEIVES_EXHAUSTED,
        detail=inside.detail,
        channel=channel,
        route=hint_of(message, ROUTE),
        contract_version=hint_of(message, "contract"),
        sender=inside.sender,
        written_by=None,
        events=inside.events,
        original=inside.original,
        original_bytes=len(inside.original),
    )


def letter_of(event: Envelope, *, place: str, id: str, since_ms: int, body: str) -> Letter | None:
    """The letter that a stamped dead-letter `event` is; None for another, or one without its members."""
    if event.type != DEAD_LETTER_TYPE:
        return None
    try:
        data = event.data()
        route = data.get("route")
        original = base64.b64decode(data["original_base64"], validate=True)
        return Letter(
            place=place,
            id=id,
            since_ms=since_ms,
            attempt=whole_number(data["attempt"], _MOST),
            kind=LetterKind.DEAD_LETTER,
            reason=str(data["reason"]),
            detail=str(data["detail"]),
            channel=str(data["channel"]),
            route=None if route is None else str(route),
            contract_version=str(data["contract_version"]),
            sender=_sender_by(event.sender, data, original),
            written_by=event.sender if event.sender != Sender() else None,
            events=(event, *_event_in(original)),
            original=original,
            original_bytes=whole_number(data["original_bytes"], _MOST),
            body=body,
        )
    except (LookupError, TypeError, ValueError, OverflowError, AttributeError):
        return None


def _sender_by(author: Sender, data: Mapping[str, Any], original: bytes) -> Sender | None:
    """Who sent a letter's original, by the word of its `author`."""
    named = data.get("sender") or {}
    told = Sender(str(named.get("device") or ""), str(named.get("service") or ""))
    if author.device:
        # A device knows of its own services only.
        return Sender(author.device, told.service)
    if author == THE_PLANE:
        return told if told != Sender() else None
    # A service's letter is about what lay in its inbox, with its sender, or about what it sent itself.
    stamped = [sender_of(each.attributes) for each in _event_in(original)]
    return next((each for each in (*stamped, author) if each != Sender()), None)


def _event_in(original: bytes) -> tuple[Envelope, ...]:
    try:
        return (parse_event(original),)
    except EnvelopeError:
        return ()


@dataclass(frozen=True, slots=True)
class _Inside:
    """What a queue message carries; the members are those of a `Letter`."""

    kind: LetterKind
    original: bytes
    detail: str = "its reader gave it back each time"
    events: tuple[Envelope, ...] = ()
    sender: Sender | None = None


def _inside(text: str) -> _Inside:
    body = text.encode("utf-8", "surrogatepass")
    try:
        event = parse_event(text)
        sender = event.sender if event.sender != Sender() else None
        return _Inside(LetterKind.EVENT, body, events=(event,), sender=sender)
    except EnvelopeError as error:
        problem = str(error)
    if packed := _packed(text):
        return _Inside(LetterKind.PACK, body, events=packed)
    try:
        frame = parse_frame(text)
    except EnvelopeError:
        return _rule_failure(text) or _Inside(
            LetterKind.UNREADABLE, body, f"neither an event nor a device's frame: {problem}"
        )
    return _Inside(LetterKind.FRAME, body, events=_events_in(frame), sender=Sender(frame.client_id))


def _packed(text: str) -> tuple[Envelope, ...]:
    """The events of a message that carries several."""
    try:
        texts = split(text)
    except EnvelopeError:
        return ()
    return () if texts == [text] else tuple(event for each in texts for event in _event_in(each.encode()))


def _rule_failure(text: str) -> _Inside | None:
    try:
        members = json.loads(text)
        original = original_of(members)
    except (ValueError, TypeError, RecursionError):
        return None
    if original is None:
        return None
    client_id, failures = str(members.get("clientId") or ""), members.get("failures")
    listed = failures if isinstance(failures, list) else []
    why = "; ".join(str(each.get("errorMessage")) for each in listed if isinstance(each, dict))
    return _Inside(
        LetterKind.RULE_FAILURE,
        original,
        f"the rule {members.get('ruleName')}: {why or 'it does not say why'}",
        _events_in(IngestFrame(original, str(members.get("topic", "")), client_id, "", 0)),
        Sender(client_id) if client_id else None,
    )


def _events_in(frame: IngestFrame) -> tuple[Envelope, ...]:
    return tuple(each.event for each in frame.items() if each.event)
