"""Attempts to deliver one event, signed, within the endpoint's rate and the remaining time; what failed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from typing import Final, TypeAlias

from eventplane.contract import Webhook
from eventplane.envelope import Envelope
from eventplane.reasons import Reason
from lambdas.common.aws import WORST_CALL_MS
from lambdas.common.clock import Clock
from lambdas.common.log import logger
from lambdas.http_sink.endpoint import Endpoint, EndpointResponse, ForbiddenTargetError, UnreachableError
from lambdas.http_sink.request import to_request
from lambdas.http_sink.signing import Keys, SigningKeyError, signature_headers

_TRY_AGAIN: Final = frozenset({408, 425, 429})
"""Client errors that say nothing against the request: RFC 9110, RFC 8470, RFC 6585."""

_PASSING: Final = frozenset({401, 403, 404, 409, 421, 423})
"""Client errors of a receiver that is being deployed, or whose key or route is about to be corrected. Knative
retries 404 and 409 as well."""

_BUSY: Final = frozenset({429, 503})
"""Answers that speak of the endpoint, not of this one event."""

_MOVED: Final = frozenset({301, 308})


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt did not deliver.

    `status` is the HTTP status, None without an answer; `is_permanent`: no attempt at this event will do
    better; `is_general`: the next event would fail just so; `retry_after_s`: what the endpoint asked for.
    """

    reason: str
    detail: str
    status: int | None
    is_permanent: bool = False
    is_general: bool = False
    retry_after_s: float | None = None


def unreachable(detail: str) -> Failure:
    """The failure of an attempt without an answer."""
    return Failure(Reason.ENDPOINT_FAILED, detail, None, is_general=True)


def forbidden(detail: str) -> Failure:
    """The failure of an attempt that was not made: the endpoint's host leads where nothing may be sent to.

    It is tried again, as long as others are: a resolver that is wrong for a minute must not cost an alarm.
    """
    return Failure(Reason.ENDPOINT_FORBIDDEN, detail, None, is_general=True)


def judge(answer: EndpointResponse, now_ms: int) -> Failure | None:
    """Why `answer` is no delivery, None for one that is; `now_ms` in Unix milliseconds."""
    status = answer.status
    if 200 <= status < 300:
        return None
    detail = f"HTTP {status} {answer.phrase}".rstrip()
    if answer.excerpt.strip():
        detail += f": {answer.excerpt.strip()}"
    if status in _MOVED:
        # Not followed: who may redirect alarms is not the old address's to say.
        detail += f" (to {answer.headers.get('location', 'an unknown place')[:200]})"
        return Failure(Reason.ENDPOINT_MOVED, detail, status, is_permanent=True)
    is_refusal = 400 <= status < 500 and status not in _TRY_AGAIN
    if is_refusal and status not in _PASSING:
        reason = Reason.ENDPOINT_GONE if status == 410 else Reason.ENDPOINT_REFUSED
        return Failure(reason, detail, status, is_permanent=True)
    retry_after_s = _retry_after_s(answer.headers.get("retry-after", ""), now_ms)
    return Failure(
        Reason.ENDPOINT_REFUSED if is_refusal else Reason.ENDPOINT_FAILED,
        detail,
        status,
        # Until the time that it names nothing may be sent (CloudEvents http-webhook, 2.2).
        is_general=status in _BUSY or retry_after_s is not None,
        retry_after_s=retry_after_s,
    )


def _retry_after_s(value: str, now_ms: int) -> float | None:
    """Seconds of a Retry-After header, which has them or an HTTP date; None when it is neither."""
    value = value.strip()
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        return max(parsedate_to_datetime(value).timestamp() - now_ms / 1_000, 0)
    except (ValueError, TypeError, OverflowError):
        return None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Posts events to `endpoint` as `webhook` says, in the name of `origin`."""

    webhook: Webhook
    origin: str
    endpoint: Endpoint
    keys: Keys
    pace: Pace
    clock: Clock
    sleep: Callable[[float], None]

    def attempt(self, event: Envelope, remaining_ms: Callable[[], int]) -> int | Failure:
        """The HTTP status by which the endpoint took `event`, or why it did not.

        Raises `NoTimeError`, and `EnvelopeError` for an event that cannot be written as a request.
        """
        request = to_request(event, self.webhook.mode)
        try:
            keys = self.keys()
        except SigningKeyError as error:
            logger.error("nothing is sent unsigned", error=str(error))
            return Failure(Reason.ENDPOINT_FAILED, str(error), None, is_general=True)
        wait_ms = self.pace.wait_ms()
        if remaining_ms() < RESERVE_MS + wait_ms + 1_000 * self.webhook.timeout_s:
            raise NoTimeError(max(1, round(wait_ms / 1_000)))
        if wait_ms:
            self.sleep(wait_ms / 1_000)
        signed = signature_headers(keys, request.id, self.clock() // 1_000, request.body)
        own = {"webhook-request-origin": self.origin, "user-agent": "eventplane"}
        self.pace.take()
        try:
            answer = self.endpoint.send("POST", {**request.headers, **own, **signed}, request.body)
        except UnreachableError as error:
            return unreachable(error.detail)
        except ForbiddenTargetError as error:
            return forbidden(error.detail)
        return judge(answer, self.clock()) or answer.status


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
