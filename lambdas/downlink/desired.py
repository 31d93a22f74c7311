"""The function that writes desired states: from the devices' inbox into the table, an item for each device.

Routers have checked already who sends what. It is checked here again, with the address, and for each page of
devices: whoever got hold of this queue could otherwise command the fleet.

What is for many devices is handed out, a message for each page of them. So no chain of messages is long,
however many devices there are: AWS Lambda ends one in which a function is called 16 times (recursive loop
detection).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from eventplane.dead_letter import Refusal
from eventplane.downlink.addressing import Addressed, addressed
from eventplane.downlink.desired import Desired
from eventplane.downlink.rights import DownlinkRights
from eventplane.downlink.table import sort_key
from eventplane.downlink.transitions import Transition, apply_event
from eventplane.downlink.wire import DownlinkError
from eventplane.envelope import Envelope, parse_event
from eventplane.errors import EnvelopeError
from eventplane.function_settings import QueueSettings
from eventplane.reasons import Reason
from eventplane.values import MAX_TIME_MS, whole_number
from lambdas.common.log import logger
from lambdas.common.queue import Invocation, QueueMessage
from lambdas.common.queue_function import QueueReader, handle_each, queue_function
from lambdas.downlink.items import RESERVE_MS, NotChangedError
from lambdas.downlink.parts import DownlinkParts, wired


@dataclass(frozen=True, slots=True)
class _Request:
    """The text of an `event`, with when the plane accepted it (Unix milliseconds), for the devices `things`.

    They follow `after` one in the registry. Without these it is to be handed out to all behind that one;
    `is_found`: there were some before it.
    """

    event: str
    accepted_at_ms: int
    things: tuple[str, ...] = ()
    after: str | None = None
    is_found: bool = False

    @property
    def body(self) -> str:
        """The text of its message."""
        return json.dumps({"downlink": asdict(self)}, ensure_ascii=False, separators=(",", ":"))


class DesiredStateWriter:
    """Reads the inbox of the devices at `inbox_url`, and sends to it what is for many, page by page."""

    def __init__(self, parts: DownlinkParts, inbox_url: str) -> None:
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
            event = parse_event(request.event)
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
        if request.things:
            members = self._parts.fleet.members(request.things, target.group, request.after)
            return self._desire(members, event, wanted, remaining_ms)
        for page in self._parts.fleet.pages(
            target.group, request.after, lambda: remaining_ms() >= RESERVE_MS
        ):
            if request.after is None and page.after is None and page.things:
                return self._desire(page.things, event, wanted, remaining_ms)  # all of them
            if page.things:
                self._send(replace(request, things=page.things))
            request = replace(request, after=page.after, is_found=request.is_found or bool(page.things))
        if request.after is not None:
            self._send(request)
        elif target.group is not None and not request.is_found:
            raise _unknown(Reason.UNKNOWN_GROUP, target.group)
        return True

    def _send(self, request: _Request) -> None:
        self._parts.sqs.send_message(QueueUrl=self._inbox_url, MessageBody=request.body)

    def _desire(
        self, things: Sequence[str], event: Envelope, wanted: Addressed, remaining_ms: Callable[[], int]
    ) -> bool:
        """Whether all `things` shall have it now; repeated, it changes nothing."""
        present = self._parts.presence.present(things)
        sk = sort_key(wanted.kind, wanted.key)
        for thing in things:
            if remaining_ms() < RESERVE_MS:
                return False

            def decide(item: Desired | None, now_ms: int, thing: str = thing) -> Transition:
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
        return self._letters.refuse(message, event, refusal, request.event)


def _request(message: QueueMessage) -> _Request:
    """An event as the router wrote it, or one that is handed out."""
    try:
        document: Any = json.loads(message.body)
        part = document["downlink"] if "specversion" not in document else None
        if part:
            return _Request(
                event=str(part["event"]),
                accepted_at_ms=whole_number(part["accepted_at_ms"], MAX_TIME_MS),
                things=tuple(map(str, part.get("things", ()))),
                after=part["after"],
                is_found=bool(part["is_found"]),
            )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        pass  # the parser says what is wrong with it
    return _Request(message.body, message.sent_at_ms)


def _raise(refusal: Refusal | None) -> None:
    if refusal is not None:
        raise DownlinkError(refusal.reason, refusal.detail)


def _unknown(reason: str, name: str) -> DownlinkError:
    return DownlinkError(reason, f"the fleet has no {name!r}; check the spelling, or register it")


def service() -> QueueReader:
    """Return the reader of the devices' inbox. Raises `SettingsError`."""
    return QueueReader(DesiredStateWriter(wired(), QueueSettings.read(os.environ).source_queue).process)


handle = queue_function(service)
