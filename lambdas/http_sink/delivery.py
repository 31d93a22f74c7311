"""Attempts to deliver one event: signed, within the endpoint's rate and the remaining time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeAlias

from eventplane.contract import Webhook
from eventplane.envelope import Envelope
from lambdas.common.aws import WORST_CALL_MS
from lambdas.common.clock import Clock
from lambdas.common.log import logger
from lambdas.http_sink.endpoint import Endpoint, ForbiddenTargetError, UnreachableError
from lambdas.http_sink.failure import FAILED, Failure, forbidden, judge, unreachable
from lambdas.http_sink.request import to_request
from lambdas.http_sink.signing import Keys, SigningKeyError, signature_headers

RESERVE_MS: Final = 3 * WORST_CALL_MS
"""What is kept for the time after an attempt, milliseconds: a dead letter, a visibility, the records."""


BREAK_FIRST_S: Final = 2
BREAK_LONGEST_S: Final = 60
"""How long an endpoint is not tried after a failure of its own, and after many, seconds."""


class NoTimeError(Exception):
    """There is no time for an attempt in this invocation; in `seconds` there may be."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds


Attempt: TypeAlias = Callable[[Envelope, Callable[[], int]], int | Failure]
"""Makes an attempt at an event, as `Delivery.attempt` does."""


class Pace:
    """Requests at least `60 / requests_per_minute` seconds apart, times the `processes` that share the rate.

    Shared evenly rather than counted in one place: a counter would cost two database calls an event, and what
    the endpoint wants is not to be overrun. None means no limit.
    """

    def __init__(self, requests_per_minute: int | None, processes: int, clock: Clock) -> None:
        self._interval_ms = 60_000 * processes / requests_per_minute if requests_per_minute else 0
        self._clock = clock
        self._next_ms = 0.0

    def wait_ms(self) -> float:
        """Milliseconds until a request may be made."""
        return max(0.0, min(self._next_ms - self._clock(), self._interval_ms))

    def take(self) -> None:
        """A request is made now."""
        self._next_ms = self._clock() + self._interval_ms


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
            keys = self._keys()
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


class CircuitBreaker:
    """Attempts by `attempt`; while the circuit is open, the last failure again without an attempt.

    So an endpoint without an answer costs the others no time.
    """

    def __init__(self, attempt: Attempt, clock: Clock) -> None:
        self._attempt = attempt
        self._clock = clock
        self._failures = 0
        self._open_until_ms = 0
        self._last: Failure | None = None

    def attempt(self, event: Envelope, remaining_ms: Callable[[], int]) -> int | Failure:
        """See `Delivery`."""
        left_ms = self._open_until_ms - self._clock()
        if self._last is not None and left_ms > 0:
            return replace(
                self._last, detail=f"not tried: {self._last.detail}", retry_after_s=left_ms / 1_000
            )
        answer = self._attempt(event, remaining_ms)
        if isinstance(answer, Failure) and answer.is_general:
            self._failures += 1
            self._last = answer
            pause_s = min(BREAK_LONGEST_S, BREAK_FIRST_S * 2 ** min(self._failures - 1, 10))
            self._open_until_ms = self._clock() + 1_000 * pause_s
        else:
            self._failures = 0
            self._last = None
        return answer
