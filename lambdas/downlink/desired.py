"""The function that writes desired states: from the devices' inbox into the table, an item for each device.

Routers have checked already who sends what. It is checked here again, with the address, and for each page of
devices: whoever got hold of this queue could otherwise command the fleet.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eventplane.dead_letter import Refusal
from eventplane.downlink.addressing import Addressed, addressed
from eventplane.downlink.desired import Desired
from eventplane.downlink.rights import DownlinkRights
from eventplane.downlink.table import sort_key
from eventplane.downlink.transitions import Step, apply_event
from eventplane.downlink.wire import DownlinkError
from eventplane.envelope import Envelope, parse_event
from eventplane.errors import EnvelopeError
from eventplane.function_settings import QueueSettings
from eventplane.reasons import Reason
from eventplane.values import MAX_TIME_MS, whole_number
from lambdas.common.log import logger
from lambdas.common.queue import Invocation, QueueMessage
from lambdas.common.queue_function import QueueReader, queue_function
from lambdas.common.redelivery import handle_each
from lambdas.downlink.items import RESERVE_MS, NotChangedError
from lambdas.downlink.parts import Parts, wired


@dataclass(frozen=True, slots=True)
class _Request:
    """An event with when the plane accepted it (Unix milliseconds), and the device `after` which to continue.

    `is_found`: there were devices for it before that one.
    """

    text: str
    accepted_at_ms: int
    after: str | None = None
    is_found: bool = False


class DesiredStateWriter:
    """Reads the inbox of the devices at `inbox_url`, and sends to it what is for the next devices of many."""

    def __init__(self, parts: Parts, inbox_url: str) -> None:
        self._parts = parts
        self._inbox_url = inbox_url
        self._rights = DownlinkRights(parts.contract)
        self._letters = parts.letters(parts.contract.device.inbox)

    def process(self, messages: Sequence[QueueMessage], invocation: Invocation) -> frozenset[str]:
        """Write what `messages` hold; return the ids of those that have to come again."""
        remaining_ms = invocation.remaining_ms
        return handle_each(
            messages, lambda each: self._take(each, remaining_ms), lambda: remaining_ms() >= RESERVE_MS
        )

    def _take(self, message: QueueMessage, remaining_ms: Callable[[], int]) -> bool:
        request, event = _request(message), None
        try:
            event = parse_event(request.text)
            kind = self._parts.contract.downlink(event.type)
            inbox = self._parts.contract.device.inbox
            wanted = addressed(event, kind, request.accepted_at_ms, inbox.expiry_s)
            return self._deliver(request, event, wanted, remaining_ms)
        except (DownlinkError, EnvelopeError) as error:
            return self._refuse(message, request, event, Refusal(error.reason, error.detail))

    def _deliver(
        self, request: _Request, event: Envelope, wanted: Addressed, remaining_ms: Callable[[], int]
    ) -> bool:
        target = wanted.target
        groups = frozenset[str]()
        if target.thing is not None:
            found = self._parts.fleet.groups(target.thing)
            if found is None:
                raise _unknown(Reason.UNKNOWN_DEVICE, target.thing)
            groups = found
        _raise(self._rights.refusal(event, wanted, groups))
        if target.thing is not None:
            return self._desire([target.thing], event, wanted, remaining_ms)
        devices = self._parts.fleet.page(target.group, request.after)
        if not self._desire(devices.things, event, wanted, remaining_ms):
            return False
        rest = replace(request, after=devices.after, is_found=request.is_found or bool(devices.things))
        if rest.after is not None:
            # After the devices before it: a message that comes again starts no second chain.
            self._parts.sqs.send_message(QueueUrl=self._inbox_url, MessageBody=_continuation(rest))
        elif target.group is not None and not rest.is_found:
            raise _unknown(Reason.UNKNOWN_GROUP, target.group)
        return True

    def _desire(
        self, things: Sequence[str], event: Envelope, wanted: Addressed, remaining_ms: Callable[[], int]
    ) -> bool:
        """Whether all `things` shall have it now; repeated, it changes nothing."""
        present = self._parts.presence.present(things)
        sk = sort_key(wanted.kind, wanted.key)
        for thing in things:
            if remaining_ms() < RESERVE_MS:
                return False

            def decide(item: Desired | None, now_ms: int, thing: str = thing) -> Step:
                if item is not None:
                    item = replace(item, owner=self._rights.owner(item.owner))
                    _raise(self._rights.key_refusal(event, wanted.key, item.owner))
                return apply_event(item, thing, wanted, now_ms, thing in present)

            try:
                step = self._parts.items.change(thing, sk, decide)
            except NotChangedError as error:
                logger.warning("not desired yet", device=thing, error=str(error))
                return False
            except DownlinkError as error:
                # That one device has no room, or holds what the event cannot follow, must not keep the others
                # from it.
                self._parts.items.give_up(thing, wanted.message.text, Refusal(error.reason, error.detail))
                continue
            if step.is_older:
                logger.info("older than what is known", device=thing, sk=sk, event_id=wanted.message.id)
        return True

    def _refuse(
        self, message: QueueMessage, request: _Request, event: Envelope | None, refusal: Refusal
    ) -> bool:
        logger.warning("refused", message_id=message.id, reason=refusal.reason, detail=refusal.detail)
        return self._letters.refuse(message, event, refusal, request.text)


def _request(message: QueueMessage) -> _Request:
    """An event as the router wrote it, or the rest of one that is for many."""
    try:
        document: Any = json.loads(message.body)
        rest = document["downlink"] if "specversion" not in document else None
        if rest:
            return _Request(
                str(rest["event"]),
                whole_number(rest["accepted_at_ms"], MAX_TIME_MS),
                str(rest["after"]),
                bool(rest["is_found"]),
            )
    except (ValueError, LookupError, TypeError, RecursionError):
        pass  # the parser says what is wrong with it
    return _Request(message.body, message.sent_at_ms)


def _continuation(request: _Request) -> str:
    rest = {
        "event": request.text,
        "accepted_at_ms": request.accepted_at_ms,
        "after": request.after,
        "is_found": request.is_found,
    }
    return json.dumps({"downlink": rest}, ensure_ascii=False, separators=(",", ":"))


def _raise(refusal: Refusal | None) -> None:
    if refusal is not None:
        raise DownlinkError(refusal.reason, refusal.detail)


def _unknown(reason: str, name: str) -> DownlinkError:
    return DownlinkError(reason, f"the fleet has no {name!r}; see its spelling, or register it")


def service() -> QueueReader:
    """Return the reader of the devices' inbox. Raises `SettingsError`."""
    return QueueReader(DesiredStateWriter(wired(), QueueSettings.read(os.environ).source_queue).process)


handle = queue_function(service)
