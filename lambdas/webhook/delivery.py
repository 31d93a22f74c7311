"""One attempt at one event: signed, within the endpoint's rate and the time there is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

from eventplane.contract import Webhook
from eventplane.envelope import Envelope
from lambdas.common.aws import WORST_CALL_MS
from lambdas.common.clock import Clock
from lambdas.common.log import logger
from lambdas.webhook.endpoint import Endpoint, ForbiddenTargetError, UnreachableError
from lambdas.webhook.keys import Keys, SigningKeyError
from lambdas.webhook.pace import Pace
from lambdas.webhook.request import to_request
from lambdas.webhook.signature import signature_headers
from lambdas.webhook.verdict import FAILED, Failure, forbidden, judge, unreachable

RESERVE_MS: Final = 3 * WORST_CALL_MS
"""What is kept for the time after an attempt, milliseconds: a dead letter, a visibility, the records."""


class NoTimeError(Exception):
    """There is no time for an attempt in this invocation; in `seconds` there may be."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds


class Attempts(Protocol):
    """Makes attempts at events."""

    def attempt(self, event: Envelope, remaining_ms: Callable[[], int]) -> int | Failure:
        """See `Delivery`."""


class Delivery:
    """Posts events to `endpoint` as `webhook` says, in the name of `origin`."""

    def __init__(
        self,
        *,
        webhook: Webhook,
        origin: str,
        endpoint: Endpoint,
        keys: Keys,
        pace: Pace,
        clock: Clock,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._webhook = webhook
        self._headers = {"webhook-request-origin": origin, "user-agent": "eventplane"}
        self._endpoint = endpoint
        self._keys = keys
        self._pace = pace
        self._clock = clock
        self._sleep = sleep

    def attempt(self, event: Envelope, remaining_ms: Callable[[], int]) -> int | Failure:
        """The HTTP status by which the endpoint took `event`, or why it did not.

        Raises `NoTimeError`, and `EnvelopeError` for an event that cannot be written as a request.
        """
        request = to_request(event, self._webhook.mode)
        try:
            keys = self._keys.get()
        except SigningKeyError as error:
            logger.error("nothing is sent unsigned", error=str(error))
            return Failure(FAILED, str(error), None, is_general=True)
        wait_ms = self._pace.wait_ms()
        if remaining_ms() < RESERVE_MS + wait_ms + 1_000 * self._webhook.timeout_s:
            raise NoTimeError(max(1, round(wait_ms / 1_000)))
        if wait_ms:
            self._sleep(wait_ms / 1_000)
        signed = signature_headers(keys, request.id, self._clock() // 1_000, request.body)
        self._pace.take()
        try:
            answer = self._endpoint.send("POST", {**request.headers, **self._headers, **signed}, request.body)
        except UnreachableError as error:
            return unreachable(error.detail)
        except ForbiddenTargetError as error:
            return forbidden(error.detail)
        return judge(answer, self._clock()) or answer.status
