"""The plane in memory: for tests of services, and the model of what the other transports do."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic

from eventplane.contract import Contract, Priority
from eventplane.contract.replies import REPLIES
from eventplane.conversation.attributes import REPLY_TO, REPLY_TYPE
from eventplane.conversation.open_requests import Announcements
from eventplane.conversation.reply import Replier
from eventplane.delivery import Refusal, dead_letter, letter_id
from eventplane.envelope import Envelope, EnvelopeError
from eventplane.filters import Any as AnyOf
from eventplane.filters import Filter
from eventplane.interest import is_wanted
from eventplane.sender import PLANE, Sender
from eventplane.sending import SendingRights, stamp_sender
from eventplane.severity import priority_of
from eventplane.timestamps import timestamp
from eventplane_client.errors import ClosedError, RefusedError
from eventplane_client.letters import UNKNOWN_VERSION
from eventplane_client.outbox_order import OutboxOrder
from eventplane_client.ports import Message

MAX_RECEIVES = 5
"""The contract's default."""

_SOURCE = "/eventplane/memory/router"
"""The `source` of the dead letters that the plane in memory writes."""


@dataclass(eq=False, slots=True)
class _Entry:
    """One event in an inbox; `number` of its last delivery."""

    body: bytes
    visible_at: float
    attempt: int = 0
    number: int = 0


@dataclass(frozen=True, slots=True)
class _Handle:
    """The delivery `number` of `entry`."""

    entry: _Entry
    number: int


class MemoryPlane:
    """Routes every event to each subscriber whose filter it passes. Thread-safe; gone with the process.

    It stamps the sender of what is put, and with a `contract` refuses what that sender may not send.
    """

    def __init__(
        self,
        *,
        visibility_s: float = 30.0,
        max_receives: int = MAX_RECEIVES,
        clock: Callable[[], float] = monotonic,
        contract: Contract | None = None,
    ) -> None:
        self.enforce(contract)
        self.visibility_s = visibility_s
        self.max_receives = max_receives
        self._clock = clock
        self._changed = threading.Condition()
        self._filters: dict[str, dict[str, Filter | None]] = {}
        self._interest: dict[str, dict[object, Filter]] = {}
        self._last_announcements: dict[Replier, int] = {}
        self._inboxes: dict[str, list[_Entry]] = {}
        self._numbers = itertools.count(1)
        self.events: list[Envelope] = []

    def subscribe(self, participant: str, name: str, filter: Filter | None) -> None:
        """From now on `participant` gets what passes `filter` (None: everything)."""
        with self._changed:
            self._filters.setdefault(participant, {})[name] = filter

    def unsubscribe(self, participant: str, name: str) -> bool:
        """Whether there was such a subscription."""
        with self._changed:
            return self._filters.get(participant, {}).pop(name, _NOTHING) is not _NOTHING

    def announce(self, participant: str, announcer: object, interest: Filter | None) -> None:
        """What `announcer`, a program of `participant`, handles from now on (None: it does not say)."""
        with self._changed:
            announced = self._interest.setdefault(participant, {})
            announced.pop(announcer, None)
            if interest is not None:
                announced[announcer] = interest
                self._last_announcements[Replier(participant)] = next(self._numbers)

    def enforce(self, contract: Contract | None) -> None:
        """From now on participants send what `contract` gives them (None: whatever they like)."""
        self._contract = contract
        self._rights = SendingRights(contract) if contract else None

    def put(self, event: Envelope, participant: str) -> None:
        """Send what lies in the outbox of `participant`.

        It comes into every inbox that a filter leads to and whose reader handles it, and once into each.
        Raises `RefusedError` for an event that is kept as a dead letter only, for a router's reasons.
        """
        sender = Sender(service=participant)
        try:
            stamped = stamp_sender(event, sender)
        except EnvelopeError as error:
            refusal: Refusal | None = Refusal(error.reason, error.detail)
        else:
            refusal = self._rights.refusal(stamped) if self._rights else None
        if refusal is None:
            self._route(stamped)
            return
        letter = dead_letter(
            id=letter_id(str(sender), *event.claim),
            source=_SOURCE,
            time=timestamp(datetime.now(UTC)),
            refusal=refusal,
            channel=f"{participant}.outbox",
            original=event.json.encode("utf-8"),
            contract_version=self._contract.version if self._contract else UNKNOWN_VERSION,
            event=event,
            sender=sender,
        )
        self._route(letter.stamped(**Sender(service=PLANE).attributes))
        raise RefusedError(participant, refusal.reason, refusal.detail)

    def _route(self, event: Envelope) -> None:
        with self._changed:
            self.events.append(event)
            for participant, filters in self._filters.items():
                if any(
                    each is None or each.matches(event.attributes) for each in filters.values()
                ) and self._is_wanted(participant, event):
                    self.deliver(participant, event)

            if event.type == REPLY_TYPE:
                self.deliver(f"{event.attributes.get(REPLY_TO)}.{REPLIES}", event)

    def handlers(self, event: Envelope) -> frozenset[Replier]:
        """Who is expected to answer a request: its subscribers, itself left out."""
        with self._changed:
            return frozenset(
                Replier(participant)
                for participant, filters in self._filters.items()
                if participant != event.attributes.get(REPLY_TO)
                and any(each is None or each.matches(event.attributes) for each in filters.values())
            )

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
            self._inboxes.setdefault(participant, []).append(_Entry(body, self._clock()))
            self._changed.notify_all()

    def pending(self, participant: str) -> int:
        """How many events the inbox holds, those in somebody's hands included."""
        with self._changed:
            return len(self._inboxes.get(participant, []))

    def expire(self) -> None:
        """Let everything in anybody's hands come again now, as if their time were over."""
        with self._changed:
            for entry in itertools.chain(*self._inboxes.values()):
                entry.visible_at = self._clock()
            self._changed.notify_all()

    def take(self, participant: str, most: int, timeout_s: float) -> list[Message]:
        """What a transport receives."""
        give_up = monotonic() + timeout_s
        with self._changed:
            while True:
                now = self._clock()
                found = [each for each in self._inboxes.get(participant, []) if each.visible_at <= now][:most]
                left = give_up - monotonic()
                if found or left <= 0:
                    return [self._message(each, now) for each in found]
                self._changed.wait(min(left, 0.05))

    def change(self, participant: str, messages: Sequence[Message], visible_in_s: float | None) -> None:
        """End the deliveries (None), or let them come again later; bygone deliveries change nothing."""
        with self._changed:
            entries = self._inboxes.get(participant, [])
            for message in messages:
                handle = message.handle
                if not isinstance(handle, _Handle) or handle.entry not in entries:
                    continue
                entry = handle.entry
                if entry.number != handle.number:
                    continue
                if visible_in_s is None:
                    entries.remove(entry)
                else:
                    entry.visible_at = self._clock() + visible_in_s
            self._changed.notify_all()

    def _is_wanted(self, participant: str, event: Envelope) -> bool:
        announced = self._interest.get(participant)
        interest = AnyOf(tuple(announced.values())) if announced else None
        severity = event.attributes.get("severitynumber")
        # Without a contract nothing but the event itself says how urgent it is.
        priority = Priority.NORMAL if severity is None else Priority(priority_of(int(severity)))
        return is_wanted(interest, event, priority)

    def _message(self, entry: _Entry, now: float) -> Message:
        entry.attempt += 1
        entry.number = next(self._numbers)
        entry.visible_at = now + self.visibility_s
        return Message(entry.body, entry.attempt, _Handle(entry, entry.number))


_NOTHING = object()


class MemoryTransport:
    """One participant's way into a `plane`."""

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
        return self._plane.take(self._participant, most, timeout_s)

    def acknowledge(self, messages: Sequence[Message]) -> list[Message]:
        self._plane.change(self._participant, messages, None)
        return []

    def release(self, message: Message, wait_s: float) -> None:
        self._plane.change(self._participant, [message], wait_s)

    def extend(self, messages: Sequence[Message]) -> None:
        self._plane.change(self._participant, messages, self._plane.visibility_s)

    def close(self) -> None:
        self._closed = True
