"""One batch of the subscribers' inbox: each sink's events by themselves, at the same time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Final

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.contract import Contract
from eventplane.delivery import Outcome
from eventplane.envelope import Envelope, EnvelopeError, parse_event
from eventplane.handover import HANDOVERS, HandoverRecord, to_line
from lambdas.common.archive import Archive
from lambdas.common.clock import Clock
from lambdas.common.log import logger
from lambdas.common.queue import QueueMessage
from lambdas.subscribers.sinks import Sinks
from lambdas.webhook.delivery import RESERVE_MS
from lambdas.webhook.service import WebhookService

UNSUBSCRIBED: Final = "unsubscribed"
"""Why an event was dropped: its subscription ended before it was delivered."""

SINK_MS: Final = 15_000
"""How long one sink may keep an invocation, milliseconds, the last attempt apart; the rest comes again."""


class SubscriberService:
    """Hands over what is in the inbox of `contract` called `address` to `sinks`."""

    def __init__(
        self, *, sinks: Sinks, contract: Contract, address: str, archive: Archive, clock: Clock, threads: int
    ) -> None:
        self._sinks = sinks
        self._version = contract.version
        self._address = address
        self._archive = archive
        self._clock = clock
        self._pool = ThreadPoolExecutor(threads)

    def process(
        self, messages: Sequence[QueueMessage], *, invocation_id: str, remaining_ms: Callable[[], int]
    ) -> frozenset[str]:
        """Hand over `messages`; the ids of those that have to come again."""
        by_route: defaultdict[str, list[QueueMessage]] = defaultdict(list)
        for message in messages:
            by_route[message.route or ""].append(message)
        try:
            self._sinks.refresh(frozenset(by_route))
        except (ClientError, BotoCoreError):
            logger.exception("nothing is known of any subscription")
            return frozenset(each.id for each in messages)
        ended = monotonic() + (SINK_MS + RESERVE_MS) / 1_000

        def left_ms() -> int:
            return min(remaining_ms(), round(1_000 * (ended - monotonic())))

        def hand_over(at: int, route: str, service: WebhookService | None) -> frozenset[str]:
            # A name of its own for the records of each: the archive has one object a name.
            name = f"{invocation_id}-{at}"
            if service is None:
                self._drop(by_route[route], name)
                return frozenset()
            return service.process(by_route[route], invocation_id=name, remaining_ms=left_ms)

        waiting = [
            self._pool.submit(hand_over, at, route, self._sinks.service(route))
            for at, route in enumerate(by_route)
        ]
        return frozenset().union(*(each.result() for each in waiting))

    def _drop(self, messages: Sequence[QueueMessage], name: str) -> None:
        now_ms = self._clock()
        lines = [to_line(self._record(each, now_ms)) for each in messages]
        logger.info(
            "dropped: nobody subscribes by the route", route=messages[0].route, messages=len(messages)
        )
        try:
            self._archive.put_lines(HANDOVERS, name, now_ms, lines)
        except (ClientError, BotoCoreError):
            logger.exception("handovers could not be archived", records=lines)

    def _record(self, message: QueueMessage, now_ms: int) -> HandoverRecord:
        event = _event(message)
        return HandoverRecord(
            decided_at_ms=now_ms,
            entered_at_ms=message.sent_at_ms,
            channel=self._address,
            contract_version=self._version,
            source=event.source if event else "",
            id=event.id if event else "",
            type=event.type if event else "",
            outcome=Outcome.DROPPED,
            reason=UNSUBSCRIBED,
            status=None,
            attempt=message.attempt,
            message_id=message.id,
        )


def _event(message: QueueMessage) -> Envelope | None:
    try:
        return parse_event(message.body)
    except EnvelopeError:
        return None
