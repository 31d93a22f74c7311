"""The function that does due work: checks of transmissions, devices that subscribed or lost all, resets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eventplane.contract import Downlink
from eventplane.downlink.desired import Desired, Phase
from eventplane.downlink.table import fleet_reset, of_device, pending_for, reset_of, sort_key
from eventplane.downlink.transitions import (
    BACKOFF_MS,
    Transition,
    ack_timeout,
    connected,
    epoch_changed,
    reset,
)
from eventplane.downlink.wire import is_key
from eventplane.records import Selection
from eventplane.topics import is_device_name
from lambdas.common.log import logger
from lambdas.common.queue import Invocation, QueueMessage, read_rule_message
from lambdas.common.queue_function import QueueReader, handle_each, queue_function
from lambdas.downlink.items import PACE_S, PAGE, RESERVE_MS
from lambdas.downlink.parts import DownlinkParts, wired


class DueWork:
    """Does the work in the downlink's own queue; idempotent, in any order."""

    def __init__(self, parts: DownlinkParts) -> None:
        self._parts = parts

    def process(self, messages: Sequence[QueueMessage], invocation: Invocation) -> frozenset[str]:
        """Do the work in `messages`; return the ids of those that have to come again."""
        remaining_ms = invocation.remaining_ms
        return handle_each(
            messages, lambda each: self._do(each, remaining_ms), lambda: remaining_ms() >= RESERVE_MS
        )

    def _do(self, message: QueueMessage, remaining_ms: Callable[[], int]) -> bool:
        match read_rule_message(message.body):
            case {"check": {"thing": str(thing), "sk": str(sk)}}:
                self._check(thing, sk)
                return True
            case {"subscribed": str(thing)} | {"eventType": "subscribed", "clientId": str(thing)}:
                # A claim and a renewal subscribe as well.
                is_device = is_device_name(thing)
                return not is_device or self._resend(thing, message.sent_at_ms, None, remaining_ms)
            case {"resend": {"thing": str(thing), "since_ms": int(since_ms), **part}}:
                return self._resend(thing, since_ms, _sort_keys(part), remaining_ms)
            case {"forget": {"thing": str(thing), "epoch": str(epoch), **part}}:
                return self._forget(thing, epoch, _sort_keys(part), remaining_ms)
            # The time at which it was queued numbers a reset, so that repeating the order changes nothing.
            case {"reset": {"key": str(key), "thing": str(thing)}} if is_key(key):
                return not self._parts.fleet.has(thing) or self._reset(
                    [thing], key, message.sent_at_ms, remaining_ms
                )
            case {"reset": {"key": str(key), "number": int(number), "things": list(things), **part}} if (
                is_key(key)
            ):
                after = part.get("after")
                members = self._parts.fleet.members(things, None, None if after is None else str(after))
                return self._reset(members, key, number, remaining_ms, is_new=False)
            case {
                "reset": {"key": str(key), "number": int() | None as number, "after": str() | None as after}
            } if is_key(key):
                return self._hand_out(key, number or message.sent_at_ms, after, remaining_ms)
        logger.error("malformed message", message_id=message.id)
        return False

    def _check(self, thing: str, sk: str) -> None:
        def decide(item: Desired | None, now_ms: int) -> Transition:
            if item is None or item.state is not Phase.SENDING:
                return Transition(item)
            return ack_timeout(item, now_ms, thing in self._parts.presence.present([thing]))

        self._parts.items.change(thing, sk, decide)

    def _resend(
        self, thing: str, since_ms: int, sks: Sequence[str] | None, remaining_ms: Callable[[], int]
    ) -> bool:
        """What waits, or the items `sks`, for a device that subscribed at `since_ms`."""

        def decide(item: Desired | None, now_ms: int) -> Transition:
            return (
                Transition(item)
                if item is None or _is_sent_since(item, since_ms)
                else connected(item, now_ms)
            )

        if sks is None:
            waiting = pending_for(thing, self._parts.clock(), PAGE)
            sks = self._first(waiting, lambda *page: self._parts.work.resend(thing, since_ms, *page))
        return self._change(thing, sks, decide, remaining_ms)

    def _forget(
        self, thing: str, epoch: str, sks: Sequence[str] | None, remaining_ms: Callable[[], int]
    ) -> bool:
        """All that a device had before it began anew, or the items `sks` of it."""
        is_present = thing in self._parts.presence.present([thing])

        def decide(item: Desired | None, now_ms: int) -> Transition:
            return Transition(None) if item is None else epoch_changed(item, epoch, now_ms, is_present)

        if sks is None:
            every = of_device(thing, PAGE)
            sks = self._first(every, lambda *page: self._parts.work.forget(thing, epoch, *page))
        return self._change(thing, sks, decide, remaining_ms)

    def _first(self, items: Selection, later: Callable[[Sequence[str], int], None]) -> Sequence[str]:
        """The sort keys of the first page of `items`; the others go to `later`, with delays in seconds.

        Not one after the other: a chain of messages must not be long.
        """
        first: Sequence[str] = ()
        for at, keys in enumerate(self._parts.table.key_pages(items)):
            sks = [sk for _, sk in keys]
            if at:
                later(sks, at * PACE_S)
            else:
                first = sks
        return first

    def _change(
        self,
        thing: str,
        sks: Sequence[str],
        decide: Callable[[Desired | None, int], Transition],
        remaining_ms: Callable[[], int],
    ) -> bool:
        """Whether there was time for all items."""
        for sk in sks:
            if remaining_ms() < RESERVE_MS:
                return False
            self._parts.items.change(thing, sk, decide)
        return True

    def _hand_out(self, key: str, number: int, after: str | None, remaining_ms: Callable[[], int]) -> bool:
        """A message for each page of the fleet, so that no chain of messages is long."""
        for page in self._parts.fleet.pages(None, after, lambda: remaining_ms() >= RESERVE_MS):
            if after is None and page.after is None:
                return self._reset(page.things, key, number, remaining_ms, is_new=False)  # all of them
            if page.things:
                self._parts.work.reset(reset_of(key, number, page.things, after))
            after = page.after
        if after is not None:
            self._parts.work.reset(fleet_reset(key, number=number, after=after))
        return True

    def _reset(
        self,
        things: Sequence[str],
        key: str,
        number: int,
        remaining_ms: Callable[[], int],
        *,
        is_new: bool = True,
    ) -> bool:
        """Begin the versions of a state's key anew; `is_new`: also where the table has lost what it knew."""
        present = self._parts.presence.present(things)
        sk = sort_key(Downlink.STATE, key)
        for thing in things:
            if remaining_ms() < RESERVE_MS:
                return False

            def decide(item: Desired | None, now_ms: int, thing: str = thing) -> Transition:
                if item is None and not is_new:
                    return Transition(None)
                known = item or Desired(thing=thing, key=key, kind=Downlink.STATE)
                return reset(known, number, now_ms, thing in present)

            self._parts.items.change(thing, sk, decide)
        return True


def _sort_keys(part: Mapping[Any, object]) -> Sequence[str] | None:
    """The items that an order is for; None: they have to be found."""
    sks = part.get("sks")
    return [str(each) for each in sks] if isinstance(sks, list) else None


def _is_sent_since(item: Desired, since_ms: int) -> bool:
    """Whether the first transmission to the new session was made already, by whomever."""
    is_first = item.state is Phase.SENDING and item.attempts == 1
    return is_first and item.due_at_ms is not None and item.due_at_ms >= since_ms + BACKOFF_MS[0]


def service() -> QueueReader:
    """Return the reader of the queue of work. Raises `SettingsError`."""
    return QueueReader(DueWork(wired()).process)


handle = queue_function(service)
