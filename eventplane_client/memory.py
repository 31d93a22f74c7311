"""The plane in memory: for tests of services, and the model of what the other transports do."""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from eventplane.attributes import priority_of
from eventplane.contract import REPLIES, Contract, Place, Priority, Route
from eventplane.conversation.messages import Replier, is_request
from eventplane.conversation.open_requests import Announcements
from eventplane.dead_letter import Refusal, dead_letter, letter_id
from eventplane.envelope import Envelope, Sender, parse_event
from eventplane.errors import EnvelopeError
from eventplane.fields import Range
from eventplane.filters import Any as AnyOf
from eventplane.filters import Filter
from eventplane.interest import is_always_wanted, is_wanted
from eventplane.interest.announcement import Announcement
from eventplane.limits import MAX_RECEIVES
from eventplane.names import PLANE, REPLY_TO, REPLY_TYPE
from eventplane.reach import place_of, sequences
from eventplane.reasons import Outcome
from eventplane.sending import SendingRights, stamp_sender
from eventplane.values import timestamp
from eventplane_client.errors import (
    AlreadySubscribedError,
    ClosedError,
    NotSubscribedError,
    RefusedError,
    UnroutedError,
)
from eventplane_client.letters import UNKNOWN_VERSION
from eventplane_client.notices import Dropped, Listener, log_notice
from eventplane_client.outbox_order import OutboxOrder
from eventplane_client.ports import Message
from eventplane_client.settings import checked
from eventplane_client.subscription import checked_filter
from eventplane_client.system import SYSTEM, System

_log = logging.getLogger(__name__)

MAX_EVENTS: Final = 100_000
"""Events that an inbox holds by default; one more drops the oldest. Ours."""

MAX_AGE_S: Final = 14.0 * 24 * 3600
"""How long an inbox keeps an event by default, seconds: as long as SQS keeps one at most."""

RANGES: Final = {
    "visibility_s": Range(0.001, 43_200, "seconds"),
    "max_receives": Range(1, MAX_RECEIVES, "deliveries", is_whole=True),
    "max_events": Range(1, 10_000_000, "events", is_whole=True),
    "max_age_s": Range(0.001, 365 * 24 * 3600, "seconds"),
}
"""What the settings of a plane in memory accept, by their names."""

PayloadCheck = Callable[[Contract, Envelope], Refusal | None]
"""Why the cloud refuses a payload, or None: `check_payload` of the package `eventplane[contract]`."""

_SOURCE = "/eventplane/memory/router"
"""The `source` of the dead letters that the plane in memory writes."""


@dataclass(eq=False, slots=True)
class _Entry:
    """One event in an inbox since `arrived_at`; first delivered at `first_at`, last as `number`."""

    body: bytes
    arrived_at: float
    visible_at: float
    attempt: int = 0
    number: int = 0
    first_at: float = 0.0


@dataclass(frozen=True, slots=True)
class _Handle:
    """The delivery `number` of the entry `key`."""

    key: int
    number: int


class MemoryPlane:
    """Routes every event to each subscriber whose filter it passes. Thread-safe; gone with the process.

    It stamps the sender of what is put. With a `contract` it has that contract's routes and rights besides
    (`enforce`).

    An inbox holds at most `max_events` events, each for at most `max_age_s` seconds. Beyond that the oldest
    is dropped, one that nobody has in hand first, and its reader's listener gets a `Dropped` notice. `clock`
    returns seconds. Raises `ClientSettingsError` for a number out of its range (`RANGES`).
    """

    def __init__(
        self,
        *,
        visibility_s: float = 30.0,
        max_receives: int = MAX_RECEIVES,
        max_events: int = MAX_EVENTS,
        max_age_s: float = MAX_AGE_S,
        clock: Callable[[], float] | None = None,
        contract: Contract | None = None,
        system: System = SYSTEM,
    ) -> None:
        numbers = {
            "visibility_s": visibility_s,
            "max_receives": max_receives,
            "max_events": max_events,
            "max_age_s": max_age_s,
        }
        for name, value in numbers.items():
            checked(name, value, RANGES[name])
        self._check: PayloadCheck | None = None
        self.enforce(contract)
        self.visibility_s = visibility_s
        self.max_receives = max_receives
        self._max_events = max_events
        self._max_age_s = max_age_s
        self._clock = clock or system.monotonic
        self.system = system
        self._changed = system.condition()
        self._filters: dict[str, dict[str, Filter | None]] = {}
        self._interest: dict[str, dict[object, Filter]] = {}
        self._last_announcements: dict[Replier, int] = {}
        # By the number of their arrival, the oldest first.
        self._inboxes: dict[str, dict[int, _Entry]] = {}
        self._listeners: dict[str, Listener] = {}
        self._dropped: deque[tuple[Listener, Dropped]] = deque()
        self._numbers = itertools.count(1)
        self._events: deque[Envelope] = deque(maxlen=max_events)

    @property
    def events(self) -> list[Envelope]:
        """The last events that were routed, dead letters included; as many as an inbox holds."""
        with self._changed:
            return list(self._events)

    def listen(self, participant: str, on_notice: Listener) -> None:
        """Tell `on_notice` what is dropped from the inbox of `participant`; without one it is logged."""
        with self._changed:
            self._listeners[participant] = on_notice

    def is_registered(self, participant: str) -> bool:
        """Return whether anything leads to the inbox of `participant`, or is still in it."""
        with self._changed:
            is_led_to = self._contract and any(
                each.destination == f"{participant}.inbox" for each in self._contract.routes
            )
            return bool(is_led_to or self._filters.get(participant) or self._inboxes.get(participant))

    def subscribe(self, participant: str, name: str, filter: Filter | None) -> None:
        """From now on `participant` gets what passes `filter` (None: everything)."""
        with self._changed:
            self._filters.setdefault(participant, {})[name] = filter

    def unsubscribe(self, participant: str, name: str) -> bool:
        """Return whether there was such a subscription."""
        with self._changed:
            return self._filters.get(participant, {}).pop(name, _NOTHING) is not _NOTHING

    def announce(self, participant: str, announcer: object, interest: Filter | None) -> None:
        """Replace what `announcer`, a program of `participant`, handles (None: unknown)."""
        with self._changed:
            announced = self._interest.setdefault(participant, {})
            announced.pop(announcer, None)
            if interest is not None:
                announced[announcer] = interest
                self._last_announcements[Replier(participant)] = next(self._numbers)

    def enforce(self, contract: Contract | None, check: PayloadCheck | None = None) -> None:
        """From now on participants have the rights and routes of `contract` (None: all rights, no routes).

        The cloud's side checks payloads with `check`, from then on with each contract. Channels have none of
        their settings, and there is one device, without a name.
        """
        self._contract = contract
        self._rights = SendingRights(contract) if contract else None
        self._check = check or self._check

    def put(self, event: Envelope, participant: str) -> None:
        """Send what lies in the outbox of `participant`.

        It comes into every inbox that a filter leads to and whose reader handles it, and once into each.

        What cannot be delivered is kept as a dead letter only. Raises `UnroutedError` for an event that
        nobody subscribed to (a request may go to nobody), `RefusedError` for a router's other reasons.
        """
        sender = Sender(service=participant)
        stamped = event
        try:
            stamped = stamp_sender(event, sender)
        except EnvelopeError as error:
            refusal: Refusal | None = Refusal(error.reason, error.detail)
        else:
            refusal = self._rights.refusal(stamped) if self._rights else None
        if refusal is None and not self._leads_anywhere(stamped):
            refusal = Refusal(Outcome.UNROUTED, f"nobody subscribed to {event.type!r}")
        if refusal is None:
            refusal = self._payload_refusal(stamped)
            self._route(stamped, self._in_home(stamped) if refusal else None)
        if refusal is None:
            return
        letter = dead_letter(
            id=letter_id(str(sender), *event.claim),
            source=_SOURCE,
            time=timestamp(self.system.now()),
            refusal=refusal,
            channel=f"{participant}.outbox",
            original=event.json.encode("utf-8"),
            contract_version=self._contract.version if self._contract else UNKNOWN_VERSION,
            event=event,
            sender=sender,
        )
        self._route(letter.stamped(**Sender(service=PLANE).attributes))
        if refusal.reason == Outcome.UNROUTED:
            raise UnroutedError(participant, refusal.detail)
        raise RefusedError(participant, refusal.reason, refusal.detail)

    def handlers(self, event: Envelope) -> frozenset[Replier]:
        """Return the handlers of a request: its subscribers that handle it, without the asker."""
        asker = str(event.attributes[REPLY_TO])
        sent = event.with_attributes(Sender(service=asker).attributes)
        with self._changed:
            return frozenset(Replier(each) for each in self._takers(sent) if each != asker)

    def announced(self) -> Announcements:
        """The last announcement of each participant that made one."""
        with self._changed:
            return dict(self._last_announcements)

    def deliver(self, participant: str, event: Envelope) -> None:
        """Straight into one inbox, as a transport does that delivers twice."""
        self.deliver_raw(participant, event.json.encode())

    def deliver_raw(self, participant: str, body: bytes) -> None:
        """Whatever `body` is."""
        with self._changed:
            self._add(participant, body)
        self._tell_dropped()

    def pending(self, participant: str) -> int:
        """Return the number of events in the inbox, those in flight included."""
        with self._changed:
            return len(self._inboxes.get(participant, {}))

    def expire(self) -> None:
        """Let everything in anybody's hands come again now, as if their time were over."""
        with self._changed:
            for inbox in self._inboxes.values():
                for entry in inbox.values():
                    entry.visible_at = self._clock()
            self._changed.notify_all()

    def take(
        self, participant: str, most: int, timeout_s: float, is_closed: Callable[[], bool] = lambda: False
    ) -> list[Message]:
        """Return what a transport receives; nothing once it `is_closed`."""
        give_up = self.system.monotonic() + timeout_s
        try:
            with self._changed:
                while True:
                    if is_closed():
                        return []
                    now = self._clock()
                    self._trim(participant, now)
                    inbox = self._inboxes.get(participant, {})
                    visible = ((key, each) for key, each in inbox.items() if each.visible_at <= now)
                    found = list(itertools.islice(visible, most))
                    left = give_up - self.system.monotonic()
                    if found or left <= 0:
                        return [self._message(key, each, now) for key, each in found]
                    self._changed.wait(min(left, 0.05))
        finally:
            self._tell_dropped()

    def change(self, participant: str, messages: Sequence[Message], visible_in_s: float | None) -> None:
        """End the deliveries (None), or let them come again later; bygone deliveries change nothing."""
        with self._changed:
            inbox = self._inboxes.get(participant, {})
            for message in messages:
                handle = message.handle
                entry = inbox.get(handle.key) if isinstance(handle, _Handle) else None
                if entry is None or not isinstance(handle, _Handle) or entry.number != handle.number:
                    continue
                if visible_in_s is None:
                    del inbox[handle.key]
                else:
                    entry.visible_at = self._clock() + visible_in_s
            self._changed.notify_all()

    def _route(self, event: Envelope, takers: list[str] | None = None) -> None:
        """Bring the event into the inboxes of `takers`, by default of all that take it."""
        with self._changed:
            self._events.append(event)
            for participant in self._takers(event) if takers is None else takers:
                self._add(participant, event.json.encode())
            if event.type == REPLY_TYPE:
                self._add(f"{event.attributes.get(REPLY_TO)}.{REPLIES}", event.json.encode())
        self._tell_dropped()

    def _add(self, participant: str, body: bytes) -> None:
        now = self._clock()
        self._inboxes.setdefault(participant, {})[next(self._numbers)] = _Entry(body, now, now)
        self._trim(participant, now)
        self._changed.notify_all()

    def _leads_anywhere(self, event: Envelope) -> bool:
        if is_always_wanted(event.type) or is_request(event):
            return True
        with self._changed:
            return bool(self._subscribed(event))

    def _takers(self, event: Envelope) -> list[str]:
        """The participants whose inbox the event comes into."""
        return [each for each in self._subscribed(event) if self._is_wanted(each, event)]

    def _subscribed(self, event: Envelope) -> list[str]:
        """The participants to whom a route of the contract or of their own leads."""
        own = (
            participant
            for participant, filters in self._filters.items()
            if any(each is None or each.matches(event.attributes) for each in filters.values())
        )
        return list(dict.fromkeys([*own, *map(_reader, self._taken(event))]))

    def _taken(self, event: Envelope) -> list[Route]:
        """The contract's routes that lead the event into an inbox, over every hop."""
        contract = self._contract
        if contract is None:
            return []
        ways = sequences(
            contract,
            self._entry(event),
            self._entry(event) is Place.DEVICE,
            lambda routes: routes[-1].filter.matches(event.attributes),
        )
        return [each[-1] for each in ways if each[-1].destination.endswith(".inbox")]

    def _in_home(self, event: Envelope) -> list[str]:
        """The participants on the device that an event from there comes to, whatever the cloud says."""
        is_from_there = self._entry(event) is Place.DEVICE
        return [_reader(each) for each in self._taken(event) if is_from_there and each.place is Place.DEVICE]

    def _entry(self, event: Envelope) -> Place:
        """The place of the router that decides first."""
        sender = self._contract and self._contract.participants.get(event.sender.service)
        return place_of(sender) if sender else Place.CLOUD

    def _payload_refusal(self, event: Envelope) -> Refusal | None:
        """Why the cloud's router refuses the payload; None also where the event stays in the home."""
        if self._contract is None or self._check is None:
            return None
        is_local = self._entry(event) is Place.DEVICE and not any(
            each.place is Place.CLOUD for each in self._taken(event)
        )
        return None if is_local else self._check(self._contract, event)

    def _is_wanted(self, participant: str, event: Envelope) -> bool:
        announced = self._interest.get(participant)
        interest = AnyOf(tuple(announced.values())) if announced else None
        severity = event.attributes.get("severitynumber")
        # Without a contract nothing but the event itself says how urgent it is.
        priority = Priority.NORMAL if severity is None else Priority(priority_of(int(severity)))
        return is_wanted(interest, event, priority)

    def _trim(self, participant: str, now: float) -> None:
        """Drop from the inbox what is too old, then the oldest of what is too much."""
        inbox = self._inboxes.get(participant, {})
        while inbox and next(iter(inbox.values())).arrived_at + self._max_age_s <= now:
            self._drop(participant, inbox.pop(next(iter(inbox))), "age")
        while len(inbox) > self._max_events:
            older = itertools.islice(inbox.items(), len(inbox) - 1)
            waiting = (key for key, each in older if each.visible_at <= now)
            self._drop(participant, inbox.pop(next(waiting, next(iter(inbox)))), "count")

    def _drop(self, participant: str, entry: _Entry, reason: str) -> None:
        try:
            names = parse_event(entry.body).key
        except EnvelopeError:
            names = ("", "", "")
        listener = self._listeners.get(participant, log_notice)
        self._dropped.append((listener, Dropped(*names, reason)))

    def _tell_dropped(self) -> None:
        """Outside the lock, and whatever the listener does: it is another participant's."""
        while self._dropped:
            try:
                listener, notice = self._dropped.popleft()
            except IndexError:  # another thread was quicker
                return
            try:
                listener(notice)
            except Exception:  # noqa: BLE001 (other people's code)
                _log.exception("the listener of notices raised, with %s", notice)

    def _message(self, key: int, entry: _Entry, now: float) -> Message:
        entry.attempt += 1
        if entry.attempt == 1:
            entry.first_at = now
        entry.number = next(self._numbers)
        entry.visible_at = now + self.visibility_s
        handle = _Handle(key, entry.number)
        return Message(entry.body, entry.attempt, handle, age_s=now - entry.first_at)


def _reader(route: Route) -> str:
    """Return the participant to whose inbox a route leads."""
    return route.destination.rpartition(".")[0]


_NOTHING = object()


class MemoryTransport:
    """One participant's way into a `plane`."""

    keeps_refused = False
    receipts = None

    def __init__(self, plane: MemoryPlane, participant: str, order: OutboxOrder | None = None) -> None:
        self._plane = plane
        self._participant = participant
        self._order = order
        self._closed = False

    @property
    def visibility_s(self) -> float | None:
        return self._plane.visibility_s

    @property
    def max_receives(self) -> int:
        return self._plane.max_receives

    def put(self, event: Envelope, timeout_s: float, *, durable: bool) -> None:  # noqa: ARG002 (at once)
        if self._closed:
            raise ClosedError(self._participant)
        self._plane.put(self._order.numbered(event) if self._order and durable else event, self._participant)

    def receive(self, most: int, timeout_s: float) -> list[Message]:
        if self._closed:
            raise ClosedError(self._participant)
        return self._plane.take(self._participant, most, timeout_s, lambda: self._closed)

    def acknowledge(self, messages: Sequence[Message], *, refused: str | None = None) -> list[Message]:  # noqa: ARG002
        self._plane.change(self._participant, messages, None)
        return []

    def release(self, message: Message, wait_s: float) -> None:
        self._plane.change(self._participant, [message], wait_s)

    def extend(self, messages: Sequence[Message]) -> None:
        self._plane.change(self._participant, messages, self._plane.visibility_s)

    def close(self) -> None:
        self._closed = True


class MemoryInterest:
    """The announcement of one program of a participant in `plane`: in force at once."""

    def __init__(self, plane: MemoryPlane, participant: str) -> None:
        self._plane = plane
        self._participant = participant

    def announce(self, announcement: Announcement) -> None:
        self._plane.announce(self._participant, self, announcement.interest)

    def withdraw(self) -> None:
        self._plane.announce(self._participant, self, None)

    def close(self) -> None:
        self.withdraw()


class MemorySubscriptions:
    """The subscriptions of `participant` in `plane`: in force at once."""

    def __init__(self, plane: MemoryPlane, participant: str) -> None:
        self._plane = plane
        self._participant = participant
        self._documents: dict[str, object] = {}

    def subscribe(self, name: str, filter: object) -> datetime:
        tree = checked_filter(name, filter)
        if self._documents.setdefault(name, filter) != filter:
            raise AlreadySubscribedError(self._participant, name)
        self._plane.subscribe(self._participant, name, tree)
        return self._plane.system.now()

    def unsubscribe(self, name: str) -> None:
        self._documents.pop(name, None)
        if not self._plane.unsubscribe(self._participant, name):
            raise NotSubscribedError(self._participant, name)
