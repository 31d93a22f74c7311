"""Packed inboxes: each event of a message that carries several is a message of its own for the reader."""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from eventplane.envelope import Envelope
from eventplane.errors import EnvelopeError
from eventplane.sqs_binding import split
from eventplane_client.ports import Message, ReceiptPort, Transport

_log = logging.getLogger(__name__)

MOST_IN_HAND = 250
"""Events of packs in hand beyond which no more messages are fetched. Ours: what is fetched waits for all that
was fetched before, and full packs cost as much one by one."""

MOST_REMEMBERED = 1_000
"""Messages that come again of which it is remembered which events are done. Ours: about 200 KB."""


@dataclass(eq=False, slots=True)
class _Pack:
    """A `message` with the numbers of its events that are not settled, and of those that were `given_back`.

    `wait_s` is the longest wait of these. `is_ended` once the transport was told what becomes of the message;
    `is_kept` if that failed and it comes again.
    """

    message: Message
    open: set[int]
    given_back: set[int] = field(default_factory=set)
    wait_s: float | None = None
    is_ended: bool = False
    is_kept: bool = False


class _Place(NamedTuple):
    """The handle of one event of a pack."""

    pack: _Pack
    number: int


class UnpackingTransport:
    """Wraps `transport`: a message with several events is acknowledged there once all of them are.

    If some were given back, the message comes again after the longest of their waits. This process then takes
    only these out of it; in another the filter, where there is one, knows the others. With `at_once` the
    message is acknowledged with its first event.
    """

    def __init__(self, transport: Transport, *, at_once: bool = False) -> None:
        self._transport = transport
        self._at_once = at_once
        self._events_per_message = 1
        self._in_hand = 0
        self._given_back: OrderedDict[bytes, set[int]] = OrderedDict()

    @property
    def visibility_s(self) -> float | None:
        return self._transport.visibility_s

    @property
    def max_receives(self) -> int:
        return self._transport.max_receives

    @property
    def keeps_refused(self) -> bool:
        return self._transport.keeps_refused

    @property
    def receipts(self) -> ReceiptPort | None:
        return self._transport.receipts

    @property
    def is_filled(self) -> bool:
        """True if so many events of packs are in hand that no more messages should be fetched."""
        return self._in_hand >= MOST_IN_HAND

    def put(self, event: Envelope, timeout_s: float, *, durable: bool) -> None:
        self._transport.put(event, timeout_s, durable=durable)

    def receive(self, most: int, timeout_s: float) -> list[Message]:
        """Do as `Transport`; `most` are messages of it, fewer where one of the last carried many events."""
        found = self._transport.receive(
            max(1, min(most, MOST_IN_HAND // self._events_per_message)), timeout_s
        )
        unpacked = [self._unpacked(message) for message in found]
        if found:
            # A full message among others may be followed by ten of its kind.
            self._events_per_message = max(1, self._events_per_message // 2, *map(len, unpacked))
        return [each for events in unpacked for each in events]

    def acknowledge(self, messages: Sequence[Message], *, refused: str | None = None) -> list[Message]:
        done: list[Message] = []
        packs: list[_Pack] = []
        for each in messages:
            if (pack := self._settled(each)) is None:
                done.append(each)
            elif not pack.is_ended and (self._at_once or not (pack.open or pack.wait_s is not None)):
                pack.is_ended = True
                packs.append(pack)
            else:
                self._let_come_again(pack)
        done += [each.message for each in packs]
        # Also nothing: with `at_once` receipts are left of what was acknowledged with its pack.
        has_more = self._at_once and self.receipts
        kept = self._transport.acknowledge(done, refused=refused) if done or has_more else []
        for pack in packs:
            pack.is_kept = pack.message in kept
        return [each for each in messages if each in kept or _is_kept(each)]

    def release(self, message: Message, wait_s: float) -> None:
        if not isinstance(message.handle, _Place):
            self._transport.release(message, wait_s)
            return
        pack, number = message.handle
        self._settled(message)
        if pack.is_ended and not pack.is_kept:
            _log.warning("an event of a packed message is dropped: its reader handles events at most once")
        pack.wait_s = max(wait_s, pack.wait_s or 0.0)
        pack.given_back.add(number)
        self._let_come_again(pack)

    def extend(self, messages: Sequence[Message]) -> None:
        self._transport.extend(list(dict.fromkeys(map(_whole, messages))))

    def close(self) -> None:
        self._transport.close()

    def _unpacked(self, message: Message) -> list[Message]:
        try:
            body = message.body.decode()
            texts = split(body)
        except (EnvelopeError, UnicodeDecodeError):
            return [message]  # its reader makes a dead letter of it
        if texts == [body]:
            return [message]
        if not texts:
            self._transport.acknowledge([message])
        numbers = sorted(self._given_back.pop(_digest(message), range(len(texts))))
        self._in_hand += len(numbers)
        pack = _Pack(message, set(numbers))
        return [
            replace(message, body=texts[number].encode(), handle=_Place(pack, number), is_shared=True)
            for number in numbers
        ]

    def _settled(self, message: Message) -> _Pack | None:
        """The pack of an event, which is settled now; None for a message that is no event of a pack."""
        if not isinstance(message.handle, _Place):
            return None
        pack, number = message.handle
        if number in pack.open:
            pack.open.remove(number)
            self._in_hand -= 1
        return pack

    def _let_come_again(self, pack: _Pack) -> None:
        if not (pack.open or pack.is_ended or pack.wait_s is None):
            pack.is_ended = True
            self._given_back[_digest(pack.message)] = pack.given_back
            if len(self._given_back) > MOST_REMEMBERED:
                self._given_back.popitem(last=False)
            self._transport.release(pack.message, pack.wait_s)


def _digest(message: Message) -> bytes:
    # A message that comes again has another handle, and the same body.
    return hashlib.sha256(message.body).digest()


def _whole(message: Message) -> Message:
    """The message of the transport."""
    return message.handle.pack.message if isinstance(message.handle, _Place) else message


def _is_kept(message: Message) -> bool:
    return isinstance(message.handle, _Place) and message.handle.pack.is_kept
