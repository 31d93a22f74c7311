"""One batch of the subscribers' inbox: each sink's events by themselves, at the same time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Final

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.envelope import Envelope, EnvelopeError, parse_event
from lambdas.common.correlation import correlation
from lambdas.common.log import logger
from lambdas.common.metrics import Metric, count
from lambdas.common.queue import QueueMessage
from lambdas.subscribers.sinks import Sinks
from lambdas.webhook.delivery import RESERVE_MS
from lambdas.webhook.service import WebhookService

SINK_MS: Final = 15_000
"""How long one sink may keep an invocation, milliseconds, the last attempt within; the rest comes again."""


class SubscriberService:
    """Hands over what is in the inbox to `sinks`, to as many of them at a time as there are `threads`."""

    def __init__(self, *, sinks: Sinks, threads: int) -> None:
        self._sinks = sinks
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
            logger.exception("nothing is known of some subscription")
            return frozenset(each.id for each in messages)
        ended = monotonic() + (SINK_MS + RESERVE_MS) / 1_000

        def left_ms() -> int:
            return min(remaining_ms(), round(1_000 * (ended - monotonic())))

        def hand_over(at: int, route: str, service: WebhookService | None) -> frozenset[str]:
            if service is None:
                self._drop(by_route[route])
                return frozenset()
            # A name of its own for the records of each: the archive has one object a name.
            name = f"{invocation_id}-{at}"
            return service.process(by_route[route], invocation_id=name, remaining_ms=left_ms)

        waiting = [
            self._pool.submit(hand_over, at, route, self._sinks.service(route))
            for at, route in enumerate(by_route)
        ]
        return frozenset().union(*(each.result() for each in waiting))

    def _drop(self, messages: Sequence[QueueMessage]) -> None:
        # Not a handover: the audit has no word for it, and the events were delivered to where the route led.
        for message in messages:
            known = correlation(message, _event(message))
            logger.warning("dropped: its subscription has ended", **known, reason="subscription_ended")
        count(Metric.DROPPED, len(messages))


def _event(message: QueueMessage) -> Envelope | None:
    try:
        return parse_event(message.body)
    except EnvelopeError:
        return None
