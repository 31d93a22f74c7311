"""Plan the deliveries of a queue message; send nothing yet. Pure, but for what it is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from eventplane.contract import Channel, Contract, ParticipantKind, Place, Priority, Route
from eventplane.contract.subscription import has_costly
from eventplane.dead_letter import (
    DEAD_LETTER_TYPE,
    ROUTER_SOURCE,
    Refusal,
    dead_letter,
    letter_id,
    reason_in,
)
from eventplane.envelope import THE_PLANE, Envelope, Sender, parse_event, sender_in_frame
from eventplane.errors import EnvelopeError, EventPlaneError
from eventplane.expiry import expires_at_ms, why_expired
from eventplane.guarantee import NOT_REPEATED, is_promised
from eventplane.hops import hops_of, sent_on
from eventplane.ingest import Accepted, parse_frame
from eventplane.interest import is_wanted
from eventplane.ledger import Basis, LedgerRecord
from eventplane.limits import MAX_EVENT_BYTES, MAX_SENT_EVENT_BYTES
from eventplane.names import DELIVER_BY, FOLLOWED_CONTRACT, LIFETIME_ATTRIBUTES
from eventplane.ordering import OrderedInboxes
from eventplane.reasons import Outcome, Reason
from eventplane.router import Router
from eventplane.sending import SendingRights, stamp_sender, without_stamp
from eventplane.values import timestamp_of_ms
from lambdas.common.queue import QueueMessage
from lambdas.router.payload import MESSAGE_SECONDS, Check, PayloadCheck, Spent

FILTER_SECONDS: Final = 0.5
"""Most computing time for the filters of one queue message, seconds. Ours: a thousand events with ordinary
filters take a tenth of it, and a batch of ten such messages fits the function's timeout."""


class SlowFiltersError(EventPlaneError):
    """The filters of one queue message take longer than `FILTER_SECONDS`."""

    message = (
        f"the filters of one message take longer than {FILTER_SECONDS:g} s; find the participant with "
        "the costly subscriptions, or the device that sends such events"
    )


class FilterTime:
    """Evaluates the filters of `router` and of announced interest; the time counts from `begin`.

    `cpu_time` gives the seconds computed. Nothing is measured unless participants added costly filters to
    `contract`: its own are the operator's.
    """

    def __init__(
        self, router: Router, contract: Contract, cpu_time: Callable[[], float], *, has_time_limit: bool
    ) -> None:
        self._router = router
        self._cpu_time = cpu_time
        self._is_bounded = has_time_limit and has_costly(contract)
        self._spent = Spent()

    def begin(self, spent: Spent) -> None:
        """Count the time of another message in `spent`."""
        self._spent = spent

    def routes(self, event: Envelope, priority: Priority) -> list[tuple[Route, bool]]:
        """The routes that `event` takes, each with whether its reader wants it. Raises `SlowFiltersError`.

        One event takes a bounded time, by the bounds on filters; so looking between two events is enough.
        """
        if not self._is_bounded:
            return self._routes(event, priority)
        if self._spent.seconds >= FILTER_SECONDS:
            raise SlowFiltersError
        before = self._cpu_time()
        found = self._routes(event, priority)
        self._spent.seconds += self._cpu_time() - before
        return found

    def _routes(self, event: Envelope, priority: Priority) -> list[tuple[Route, bool]]:
        return [(route, is_wanted(route.interest, event, priority)) for route in self._router.route(event)]


@dataclass(frozen=True, slots=True)
class Step:
    """One line for the ledger and, if its outcome is a delivery, the `event` that has to be sent for it.

    `original` is the event as it came, None where it came as none. A delivery at best effort is `tried_once`:
    what becomes of it is final, and its message never comes again because of it.
    """

    record: LedgerRecord
    original: Envelope | None
    event: Envelope | None = None
    tried_once: bool = False

    @property
    def traceparent(self) -> str | None:
        """The W3C trace context that the event carries."""
        value = self.original.attributes.get("traceparent") if self.original else None
        return None if value is None else str(value)


@dataclass(frozen=True, slots=True)
class _Entry:
    """How something came in: the queue message and its attempt, when it was accepted and first received (Unix
    milliseconds), from which client, who sent it or put it back, and on what basis it is decided. What had
    expired at `present_ms` is over. Of what is sent again by an order, `is_replay`, all is promised."""

    message_id: str
    attempt: int
    accepted_at_ms: int
    received_at_ms: int | None
    present_ms: int
    client_id: str | None
    sender: Sender
    basis: Basis = Basis.IN_FORCE
    put_back_by: str | None = None
    is_replay: bool = False


class Planner:
    """Applies the cloud's routes of `contract` to what comes over the channel called `source`.

    A device's outbox arrives as frames of the ingest rule, a service's as one event a message. With a
    `has_time_limit`, `plan` raises `SlowFiltersError` for a message whose filters exceed their time.
    """

    def __init__(
        self,
        contract: Contract,
        source: str,
        cpu_time: Callable[[], float],
        *,
        has_time_limit: bool = False,
        payload_s: float = MESSAGE_SECONDS,
    ) -> None:
        self._contract = contract
        router = Router(contract, Place.CLOUD)
        self._filters = FilterTime(router, contract, cpu_time, has_time_limit=has_time_limit)
        self._rights = SendingRights(contract)
        self._payloads = PayloadCheck(contract, cpu_time, payload_s)
        self._ordered = OrderedInboxes(contract)
        self._set_source(source)
        self._down = contract.device.inbox.address
        self._candidate: tuple[str, Planner] | None = None

    @property
    def version(self) -> str:
        """The version of the contract that it applies."""
        return self._contract.version

    def _set_source(self, source: str) -> None:
        self._channel: Channel = self._contract.channel(source)
        kind = self._contract.participants[self._channel.participant].kind
        self._has_frames = kind is ParticipantKind.DEVICE

    def of(self, source: str) -> Planner:
        """Return the planner of what comes over the channel called `source`; the two share their filters."""
        planner = copy(self)
        planner._set_source(source)  # noqa: SLF001 - of a copy of its own
        if self._candidate:
            version, other = self._candidate
            return planner.beside(version, other.of(source))
        return planner

    def beside(self, version: str, candidate: Planner) -> Planner:
        """Return the planner that leaves to `candidate` the events that devices accepted under `version`.

        Nobody else can name a version: of a cloud service's event the attribute says nothing.
        """
        planner = copy(self)
        planner._candidate = version, candidate  # noqa: SLF001 - of a copy of its own
        return planner

    def plan(
        self, message: QueueMessage, now_ms: int, *, is_replay: bool = False, ends_ms: int | None = None
    ) -> Iterator[Step]:
        """The steps of one message, at least one for each item in it; `now_ms` in Unix milliseconds.

        In a replay everything is delivered at least once: its order is repeated until all of it is done. Its
        event expires at `ends_ms`, as the tap has it; None: a lifetime after its acceptance.
        """
        judges = self._judges()
        entry, items = self._open(message, now_ms if message.present_ms is None else message.present_ms)
        now_ms = max(now_ms, entry.present_ms)
        entry = replace(entry, is_replay=is_replay)
        for item in items:
            item = item if ends_ms is None else replace(item, expires_at_ms=ends_ms)
            if (sender := self._sender(entry, item.event)) != entry.sender:
                entry = replace(entry, sender=sender)
            if item.error is not None:
                refusal = Refusal(item.error.reason, item.error.detail)
                yield from self._refused(entry, item, refusal, now_ms)
            elif item.event is not None:
                followed = item.event.attributes.get(FOLLOWED_CONTRACT) if self._has_frames else None
                judge, check = judges.get(followed) or judges[None]
                yield from judge._judged(entry, item, item.event, check, now_ms)  # noqa: SLF001 - of its own class

    def _judges(self) -> dict[object, tuple[Planner, Check]]:
        """Return who judges the events of one message, and checks their payloads, by the version they name.

        Under None are all others: those that name none, or one that is not in force for anybody.
        """
        filters, payloads = Spent(), Spent()
        found: dict[object, tuple[Planner, Check]] = {}
        for version, planner in ((None, self), *((self._candidate,) if self._candidate else ())):
            planner._filters.begin(filters)  # noqa: SLF001 - of its own class
            found[version] = planner, planner._payloads.of_message(payloads)  # noqa: SLF001
        return found

    def dead(self, step: Step, refusal: Refusal, now_ms: int) -> Iterator[Step]:
        """Yield the dead letter of a `step` that ends for this reason on its route."""
        if self._candidate and step.record.contract_version == self._candidate[1].version:
            yield from self._candidate[1].dead(step, refusal, now_ms)
            return
        record, original = step.record, step.original
        yield Step(replace(record, outcome=Outcome.DEAD_LETTERED, reason=refusal.reason), original)
        if original is not None:
            entry = _Entry(
                record.message_id,
                record.attempt,
                record.entered_at_ms,
                record.received_at_ms,
                now_ms,
                record.client_id,
                original.sender,
                record.basis,
                record.put_back_by,
            )
            # As it came: who sends the original again has it stamped again.
            text = without_stamp(original).json.encode("utf-8")
            id = letter_id(*original.key)
            yield from self._dead_lettered(entry, id, text, refusal, now_ms, original, record.route)

    def letter(self, message: QueueMessage, letter: Envelope, now_ms: int) -> Iterator[Step]:
        """The steps of a dead `letter` that somebody else wrote about what `message` asks for."""
        entry = _Entry(message.id, message.attempt, now_ms, message.received_at_ms, now_ms, None, THE_PLANE)
        stamped = letter if letter.sender == THE_PLANE else stamp_sender(letter, THE_PLANE)
        return self._letter_steps(entry, stamped, now_ms)

    def _open(self, message: QueueMessage, present_ms: int) -> tuple[_Entry, Iterator[Accepted]]:
        sent_ms, received_ms = message.sent_at_ms, message.received_at_ms
        entry = _Entry(message.id, message.attempt, sent_ms, received_ms, present_ms, None, Sender())
        original = message.body.encode("utf-8", "surrogatepass")
        try:
            if not self._has_frames:
                event = parse_event(message.body)
                ends_ms = expires_at_ms(event.without(LIFETIME_ATTRIBUTES), sent_ms)
                return entry, iter([Accepted(0, event, original, None, ends_ms)])
            frame = parse_frame(message.body)
        except EnvelopeError as error:
            return entry, iter([Accepted(0, None, original, error)])
        entry = replace(
            entry,
            accepted_at_ms=frame.accepted_at_ms,
            client_id=frame.client_id,
            put_back_by=frame.put_back_by,
        )
        return entry, frame.items()

    def _sender(self, entry: _Entry, event: Envelope | None) -> Sender:
        """Who sent an item, by the transport. A device vouches for the services on it."""
        if not self._has_frames:
            return Sender(service=self._channel.participant)
        if entry.client_id is None:
            return Sender()
        return sender_in_frame(entry.client_id, event.attributes if event else {})

    def _stamped(self, entry: _Entry, event: Envelope) -> Envelope:
        """The `event` with its sender. Raises `EnvelopeError` if it names one itself, or gets too large."""
        stamped = stamp_sender(event, entry.sender)
        if stamped.bytes > MAX_EVENT_BYTES:
            raise EnvelopeError(
                Reason.TOO_LARGE,
                f"{stamped.bytes} bytes with its sender's name; send at most {MAX_SENT_EVENT_BYTES}",
            )
        return stamped

    def _judged(
        self, entry: _Entry, item: Accepted, event: Envelope, check: Check, now_ms: int
    ) -> Iterator[Step]:
        # Before routing: an event that no route takes, or that has expired, is refused all the same.
        try:
            stamped = self._stamped(entry, event)
            outgoing = stamped if self._has_frames and not hops_of(event) else sent_on(stamped)
            outgoing = _limited(self._ordered.valid(outgoing), item.expires_at_ms)
        except EnvelopeError as error:
            if error.reason == Reason.HOP_LIMIT and event.type == DEAD_LETTER_TYPE:
                # A letter about a letter would only keep the loop going.
                priority = self._priority(event)
                record = self._record(
                    entry, event, priority, now_ms, item.digest, None, Outcome.DROPPED, error.reason
                )
                yield Step(record, event)
            else:
                yield from self._refused(entry, item, Refusal(error.reason, error.detail), now_ms)
            return
        if wrong := self._rights.refusal(stamped) or check(event):
            yield from self._refused(entry, item, wrong, now_ms)
        else:
            since_ms, digest = entry.accepted_at_ms, item.digest
            yield from self._routed(entry, stamped, outgoing, now_ms, since_ms=since_ms, digest=digest)

    def _routed(
        self,
        entry: _Entry,
        event: Envelope,
        outgoing: Envelope,
        now_ms: int,
        *,
        since_ms: int,
        digest: str | None = None,
    ) -> Iterator[Step]:
        """`event` decides where it goes, `outgoing` is what goes there; its age counts from `since_ms`."""
        priority = self._priority(event)
        routes = self._filters.routes(event, priority)
        record = partial(self._record, entry, event, priority, now_ms, digest)
        if not routes:
            yield Step(record(None, Outcome.UNROUTED, "no_route"), event)
        for route, has_interest in routes:
            channels = self._channel, self._contract.channel(route.destination)
            if route.destination == self._down and event.sender.device:
                refusal = Refusal(
                    Reason.SENDER_NOT_ALLOWED, f"{event.sender}: only cloud services send to devices"
                )
                yield from self.dead(Step(record(route, Outcome.DELIVERED, None), event), refusal, now_ms)
            elif not has_interest:
                yield Step(record(route, Outcome.NO_INTEREST, Reason.NO_INTEREST), event)
            elif why := why_expired(outgoing, entry.present_ms, since_ms, *channels):
                yield Step(record(route, Outcome.EXPIRED, why), event)
            elif entry.is_replay or is_promised(self._contract, event, self._channel, route):
                yield Step(record(route, Outcome.DELIVERED, None), event, outgoing)
            elif entry.attempt > 1:
                yield Step(record(route, Outcome.DROPPED, NOT_REPEATED), event)
            else:
                yield Step(record(route, Outcome.DELIVERED, None), event, outgoing, tried_once=True)

    def _letter_steps(self, entry: _Entry, letter: Envelope, now_ms: int) -> Iterator[Step]:
        """Route a dead letter of the plane's own, like any event."""
        entry = replace(entry, sender=THE_PLANE, put_back_by=None)
        return self._routed(entry, letter, letter, now_ms, since_ms=now_ms)

    def _refused(self, entry: _Entry, item: Accepted, refusal: Refusal, now_ms: int) -> Iterator[Step]:
        """The original is never tried again: it becomes a dead letter, which is routed like any event."""
        priority = self._priority(item.event)
        record = self._record(
            entry, item.event, priority, now_ms, item.digest, None, Outcome.DEAD_LETTERED, refusal.reason
        )
        yield Step(record, item.event)
        # The same event, or message and place, give the same id: a repetition is not a second letter.
        id = f"{entry.message_id}.{item.index}"
        if item.event:
            id = letter_id(str(entry.sender), item.event.source, item.event.id)
        yield from self._dead_lettered(entry, id, item.original, refusal, now_ms, item.event)

    def _dead_lettered(
        self,
        entry: _Entry,
        id: str,
        original: bytes,
        refusal: Refusal,
        now_ms: int,
        event: Envelope | None,
        route: str | None = None,
    ) -> Iterator[Step]:
        letter = dead_letter(
            id=id,
            source=ROUTER_SOURCE,
            time=timestamp_of_ms(now_ms),
            refusal=refusal,
            channel=self._channel.address,
            original=original,
            contract_version=self._contract.version,
            route=route,
            attempt=entry.attempt,
            event=event,
            sender=entry.sender,
        )
        return self._letter_steps(entry, stamp_sender(letter, THE_PLANE), now_ms)

    def _priority(self, event: Envelope | None) -> Priority:
        return self._contract.priority(event, self._channel) if event else self._channel.priority

    def _record(
        self,
        entry: _Entry,
        event: Envelope | None,
        priority: Priority,
        now_ms: int,
        digest: str | None,
        route: Route | None,
        outcome: Outcome,
        reason: str | None,
    ) -> LedgerRecord:
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
            attempt=entry.attempt,
            message_id=entry.message_id,
            sender=str(entry.sender),
            received_at_ms=entry.received_at_ms,
            basis=entry.basis,
            put_back_by=entry.put_back_by,
            digest=digest,
            dead_letter_reason=reason_in(event) if event else None,
        )


def _limited(event: Envelope, ends_ms: int | None) -> Envelope:
    """Return `event` with the time until which it is to be delivered, and nothing that its sender says of it.

    Without room for that, or need, it has in its inbox the lifetime that it had when it was written.
    """
    event = event.without(LIFETIME_ATTRIBUTES)
    if ends_ms is None or expires_at_ms(event, 0) == ends_ms:
        return event
    limited = event.with_attributes({DELIVER_BY: timestamp_of_ms(ends_ms)})
    return limited if limited.bytes <= MAX_EVENT_BYTES else event
