"""What shall go down to devices: from the devices' inbox into the table, one item a device.

Routers have checked already who sends what. It is checked here again, with the address, and for each page of
devices: whoever got hold of this queue could otherwise command the fleet.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eventplane.contract import Contract
from eventplane.delivery import Refusal, letter_id
from eventplane.downlink import errors
from eventplane.downlink.addressing import Addressed, addressed
from eventplane.downlink.desired import Desired, Step
from eventplane.downlink.errors import DownlinkError
from eventplane.downlink.rights import DownlinkRights
from eventplane.downlink.sending import desire
from eventplane.downlink.table import sort_key
from eventplane.envelope import Envelope, EnvelopeError, parse_event
from eventplane.whole_numbers import MAX_TIME_MS, whole_number
from lambdas.common.clock import Clock
from lambdas.common.letters import Letters
from lambdas.common.log import logger
from lambdas.common.queue import QueueMessage
from lambdas.common.redelivery import handle_each
from lambdas.downlink.fleet import Fleet
from lambdas.downlink.items import RESERVE_MS, Items, NotChangedError
from lambdas.downlink.presence import Presence


@dataclass(frozen=True, slots=True)
class _Wish:
    """An event with when the plane accepted it (Unix milliseconds), and the device `after` which to go on.

    `is_found`: devices before that one shall have it.
    """

    text: str
    accepted_at_ms: int
    after: str | None = None
    is_found: bool = False


class Wanted:
    """Takes in the inbox of the devices; `go_on` sends a text to it, for the next devices of many."""

    def __init__(
        self,
        *,
        contract: Contract,
        fleet: Fleet,
        presence: Presence,
        items: Items,
        letters: Letters,
        go_on: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self._contract = contract
        self._rights = DownlinkRights(contract)
        self._fleet = fleet
        self._presence = presence
        self._items = items
        self._letters = letters
        self._go_on = go_on
        self._clock = clock

    def process(self, messages: Sequence[QueueMessage], remaining_ms: Callable[[], int]) -> frozenset[str]:
        """Take in `messages`; the ids of those that have to come again."""
        return handle_each(
            messages, lambda each: self._take(each, remaining_ms), lambda: remaining_ms() >= RESERVE_MS
        )

    def _take(self, message: QueueMessage, remaining_ms: Callable[[], int]) -> bool:
        wish, event = _wish(message), None
        try:
            event = parse_event(wish.text)
            kind = self._contract.downlink(event.type)
            inbox = self._contract.device.inbox
            wanted = addressed(event, kind, wish.accepted_at_ms, inbox.expiry_s)
            return self._deliver(wish, event, wanted, remaining_ms)
        except (DownlinkError, EnvelopeError) as error:
            return self._refuse(message, wish, event, Refusal(error.reason, error.detail))

    def _deliver(
        self, wish: _Wish, event: Envelope, wanted: Addressed, remaining_ms: Callable[[], int]
    ) -> bool:
        target = wanted.target
        groups = frozenset[str]()
        if target.thing is not None:
            found = self._fleet.groups(target.thing)
            if found is None:
                raise _unknown(errors.UNKNOWN_DEVICE, target.thing)
            groups = found
        _raise(self._rights.refusal(event, wanted, groups))
        if target.thing is not None:
            return self._desire([target.thing], event, wanted, remaining_ms)
        devices = self._fleet.page(target.group, wish.after)
        if not self._desire(devices.things, event, wanted, remaining_ms):
            return False
        rest = replace(wish, after=devices.after, is_found=wish.is_found or bool(devices.things))
        if rest.after is not None:
            # After the devices before it: a message that comes again starts no second chain.
            self._go_on(_continuation(rest))
        elif target.group is not None and not rest.is_found:
            raise _unknown(errors.UNKNOWN_GROUP, target.group)
        return True

    def _desire(
        self, things: Sequence[str], event: Envelope, wanted: Addressed, remaining_ms: Callable[[], int]
    ) -> bool:
        """Whether all `things` shall have it now; repeated, it changes nothing."""
        present = self._presence.present(things)
        sk = sort_key(wanted.kind, wanted.key)
        for thing in things:
            if remaining_ms() < RESERVE_MS:
                return False

            def decide(item: Desired | None, now_ms: int, thing: str = thing) -> Step:
                if item is not None:
                    item = replace(item, owner=self._rights.owner(item.owner))
                    _raise(self._rights.key_refusal(event, wanted.key, item.owner))
                return desire(item, thing, wanted, now_ms, thing in present)

            try:
                step = self._items.change(thing, sk, decide)
            except NotChangedError as error:
                logger.warning("not desired yet", device=thing, error=str(error))
                return False
            except DownlinkError as error:
                # That one device has no room, or holds what the event cannot follow, must not keep the others
                # from it.
                self._items.give_up(thing, wanted.text, Refusal(error.reason, error.detail))
                continue
            if step.is_older:
                logger.info("older than what is known", device=thing, sk=sk, event_id=wanted.id)
        return True

    def _refuse(self, message: QueueMessage, wish: _Wish, event: Envelope | None, refusal: Refusal) -> bool:
        logger.warning("refused", message_id=message.id, reason=refusal.reason, detail=refusal.detail)
        id = letter_id(*event.key) if event else message.id
        return self._letters.write(id, wish.text, event, refusal, self._clock(), attempt=message.attempt)


def _wish(message: QueueMessage) -> _Wish:
    """An event as the router wrote it, or the rest of one that is for many."""
    try:
        document: Any = json.loads(message.body)
        rest = document["downlink"] if "specversion" not in document else None
        if rest:
            return _Wish(
                str(rest["event"]),
                whole_number(rest["accepted_at_ms"], MAX_TIME_MS),
                str(rest["after"]),
                bool(rest["is_found"]),
            )
    except (ValueError, LookupError, TypeError, RecursionError):
        pass  # the parser says what is wrong with it
    return _Wish(message.body, message.sent_at_ms)


def _continuation(wish: _Wish) -> str:
    rest = {
        "event": wish.text,
        "accepted_at_ms": wish.accepted_at_ms,
        "after": wish.after,
        "is_found": wish.is_found,
    }
    return json.dumps({"downlink": rest}, ensure_ascii=False, separators=(",", ":"))


def _raise(refusal: Refusal | None) -> None:
    if refusal is not None:
        raise DownlinkError(refusal.reason, refusal.detail)


def _unknown(reason: str, name: str) -> DownlinkError:
    return DownlinkError(reason, f"the fleet has no {name!r}; see its spelling, or register it")
