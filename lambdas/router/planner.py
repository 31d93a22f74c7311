"""What shall become of a queue message, decided before anything is sent. Pure, but for what it is given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from eventplane.contract import Channel, Contract, ParticipantKind, Place, Route
from eventplane.delivery import Outcome, Refusal, dead_letter, letter_id
from eventplane.envelope import Envelope, EnvelopeError, parse_event
from eventplane.expiry import is_expired
from eventplane.ingest import Accepted, parse_frame
from eventplane.ledger import LedgerRecord
from eventplane.router import Router
from lambdas.common.queue import QueueMessage
from lambdas.router.payload import PayloadCheck

DEAD_LETTER_SOURCE: Final = "/eventplane/cloud/router"
"""The `source` of the dead letters that the cloud's routers write."""


@dataclass(frozen=True, slots=True)
class Step:
    """One line for the ledger and, if its outcome is a delivery, the `event` that has to be sent for it."""

    record: LedgerRecord
    event: Envelope | None = None


@dataclass(frozen=True, slots=True)
class _Entry:
    """How something came in: the message, when it was accepted (Unix milliseconds), from which client."""

    message: QueueMessage
    accepted_at_ms: int
    client_id: str | None


class Planner:
    """Applies the cloud's routes of `contract` to what comes over the channel called `source`.

    A device's outbox arrives as frames of the ingest rule, a service's as one event a message.
    """

    def __init__(self, contract: Contract, source: str) -> None:
        self._contract = contract
        self._router = Router(contract, Place.CLOUD)
        self._payloads = PayloadCheck(contract)
        self._channel: Channel = contract.channel(source)
        kind = contract.participants[self._channel.participant].kind
        self._has_frames = kind is ParticipantKind.DEVICE

    def plan(self, message: QueueMessage, now_ms: int) -> Iterator[Step]:
        """The steps of one message, at least one for each item in it; `now_ms` in Unix milliseconds."""
        entry, items = self._open(message)
        check = self._payloads.of_message()
        for item in items:
            if item.error is not None:
                refusal = Refusal(item.error.reason, item.error.detail)
                yield from self._refused(entry, item, refusal, now_ms)
            elif item.event is not None:
                # Before everything else: what is wrong is said of an event that nobody takes, or no longer.
                if wrong := check(item.event):
                    yield from self._refused(entry, item, wrong, now_ms)
                else:
                    yield from self._routed(entry, item.event, now_ms)

    def _open(self, message: QueueMessage) -> tuple[_Entry, Iterator[Accepted]]:
        entry = _Entry(message, message.sent_at_ms, None)
        original = message.body.encode("utf-8", "surrogatepass")
        try:
            if not self._has_frames:
                return entry, iter([Accepted(0, parse_event(message.body), original, None)])
            frame = parse_frame(message.body)
        except EnvelopeError as error:
            return entry, iter([Accepted(0, None, original, error)])
        return _Entry(message, frame.accepted_at_ms, frame.client_id), frame.items()

    def _routed(self, entry: _Entry, event: Envelope, now_ms: int) -> Iterator[Step]:
        routes = self._router.route(event)
        if not routes:
            yield Step(self._record(entry, event, now_ms, None, Outcome.UNROUTED, "no_route"))
        expired = is_expired(event, now_ms)
        for route in routes:
            if expired:
                yield Step(self._record(entry, event, now_ms, route, Outcome.EXPIRED, "expirytime"))
            else:
                yield Step(self._record(entry, event, now_ms, route, Outcome.DELIVERED, None), event)

    def _refused(self, entry: _Entry, item: Accepted, refusal: Refusal, now_ms: int) -> Iterator[Step]:
        """The original is never tried again: it becomes a dead letter, which is routed like any event."""
        yield Step(self._record(entry, item.event, now_ms, None, Outcome.DEAD_LETTERED, refusal.reason))
        letter = dead_letter(
            # The same event, or message and place, give the same id: a repetition is not a second letter.
            id=letter_id(*item.event.key) if item.event else f"{entry.message.id}.{item.index}",
            source=DEAD_LETTER_SOURCE,
            time=datetime.fromtimestamp(now_ms / 1_000, UTC).isoformat(timespec="milliseconds"),
            refusal=refusal,
            channel=self._channel.address,
            original=item.original,
            contract_version=self._contract.version,
            attempt=entry.message.attempt,
        )
        yield from self._routed(entry, letter, now_ms)

    def _record(
        self,
        entry: _Entry,
        event: Envelope | None,
        now_ms: int,
        route: Route | None,
        outcome: Outcome,
        reason: str | None,
    ) -> LedgerRecord:
        priority = self._contract.priority(event, self._channel) if event else self._channel.priority
        return LedgerRecord(
            decided_at_ms=now_ms,
            entered_at_ms=entry.accepted_at_ms,
            entered_by=self._channel.address,
            contract_version=self._contract.version,
            # What was never an event has no names.
            source=event.source if event else "",
            id=event.id if event else "",
            type=event.type if event else "",
            priority=priority,
            client_id=entry.client_id,
            route=route.name if route else None,
            destination=route.destination if route else None,
            outcome=outcome,
            reason=reason,
            attempt=entry.message.attempt,
            message_id=entry.message.id,
        )
