"""Attempts to deliver one event, signed, within the endpoint's rate and the remaining time; what failed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from typing import Final, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.contract import Webhook
from eventplane.envelope import Envelope
from eventplane.reasons import Reason
from eventplane.records import ATTEMPTS, NEW, ConflictError, RecordError, Records
from lambdas.common.aws import QUICK, WORST_CALL_MS
from lambdas.common.log import logger
from lambdas.common.system import Clock
from parts.webhooks.endpoint import EndpointResponse, ForbiddenTargetError, HttpSink, UnreachableError
from parts.webhooks.endpoint_state import EndpointState
from parts.webhooks.request import to_request
from parts.webhooks.signing import Keys, SigningKeyError, signature_headers

_TRY_AGAIN: Final = frozenset({408, 425, 429})
"""Client errors that say nothing against the request: RFC 9110, RFC 8470, RFC 6585."""

_PASSING: Final = frozenset({401, 403, 404, 409, 421, 423})
"""Client errors of a receiver that is being deployed, or whose key or route is about to be corrected. Knative
retries 404 and 409 as well."""

_BUSY: Final = frozenset({429, 503})
"""Answers that speak of the endpoint, not of this one event."""

_GONE: Final = 410
"""No further notifications (CloudEvents http-webhook, 2.2); a receiver's wrong deployment says so as well."""

_MOVED: Final = frozenset({301, 308})


@dataclass(frozen=True, slots=True)
class PostFailure:
    """Why an attempt did not deliver.

    `status` is the HTTP status, None without an answer; `is_permanent`: no attempt at this event will do
    better; `is_general`: the next event would fail just so; `retry_after_s`: how long nothing may be sent.
    `failed_at_ms`: if no attempt was made, when the endpoint had failed; None after an attempt.
    """

    reason: str
    detail: str
    status: int | None
    is_permanent: bool = False
    is_general: bool = False
    retry_after_s: float | None = None
    failed_at_ms: int | None = None


def judge(answer: EndpointResponse, now_ms: int) -> PostFailure | None:
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
        return PostFailure(Reason.ENDPOINT_MOVED, detail, status, is_permanent=True)
    if status == _GONE:
        return PostFailure(Reason.ENDPOINT_GONE, detail, status, is_general=True)
    is_refusal = 400 <= status < 500 and status not in _TRY_AGAIN
    if is_refusal and status not in _PASSING:
        return PostFailure(Reason.ENDPOINT_REFUSED, detail, status, is_permanent=True)
    retry_after_s = _retry_after_s(answer.headers.get("retry-after", ""), now_ms)
    return PostFailure(
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


RESERVE_MS: Final = 3 * WORST_CALL_MS + QUICK.worst_call_ms
"""What is kept for the time after an attempt, milliseconds: a dead letter, a visibility, the records, and one
call to the table of endpoints, which is left alone after one that fails."""

KNOWN_MS: Final = 1_000
"""How old the knowledge of a healthy endpoint may become within an invocation, milliseconds. Ours: one read
covers the batch of an endpoint that answers quickly."""

ALONE_MS: Final = 10_000
"""How long a process does without the record of an endpoint after a call that failed, milliseconds."""

T = TypeVar("T")


class NoTimeError(Exception):
    """There is no time for an attempt in this invocation; in `seconds` there may be."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds


class Rate:
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


class Breaker:
    """Keeps requests from an endpoint that failed, in all processes that share the record at `key`.

    While the table of `records` does not answer, the process goes by what it has seen itself. `longest_ms` is
    how long one request takes at most.
    """

    def __init__(self, records: Records[EndpointState], key: str, clock: Clock, longest_ms: int) -> None:
        self._records = records
        self._clock = clock
        self._longest_ms = longest_ms
        self._healthy = EndpointState(endpoint=key)
        self._known = self._healthy
        self._known_until_ms = 0
        self._alone_until_ms = 0
        self._is_untold = False

    def begin(self) -> None:
        """Have the record read before the next request: an invocation begins."""
        self._known_until_ms = 0

    def pause(self) -> PostFailure | None:
        """Return the endpoint's last failure while nothing may be sent to it, else None."""
        now_ms = self._clock()
        if self._is_untold:
            self._known = self._shared(self._tell, lambda: self._known)
        # A pause does not end early; the process that asks may be done before its time.
        if now_ms >= max(self._known.paused_until_ms, self._known_until_ms):
            self._known_until_ms = now_ms + KNOWN_MS
            self._known = self._shared(self._read, lambda: self._known)
        left_ms = self._known.left_ms(now_ms)
        return self._not_asked(left_ms) if left_ms else None

    def enter(self) -> PostFailure | None:
        """Return None if this process may send a request, and then calls `learn`; else the last failure."""
        for _ in range(ATTEMPTS):
            if (failure := self.pause()) or not self._known.failures:
                return failure
            if self._claim():
                return None
            self.begin()
        return self._not_asked(1_000)

    def learn(self, failure: PostFailure | None, sent_at_ms: int) -> PostFailure | None:
        """Keep what a request sent at `sent_at_ms` showed; return `failure` with the pause that follows."""
        if failure is None or not failure.is_general:
            if self._known.failures:
                self._shared(lambda: self._records.remove(self._known), lambda: True)
                self._known, self._is_untold = self._healthy, False
                self.begin()
            return failure
        now_ms = self._clock()

        def failed(before: EndpointState | None) -> EndpointState:
            return (before or self._healthy).failed(
                failure.reason,
                failure.detail,
                failure.status,
                retry_after_s=failure.retry_after_s,
                sent_at_ms=sent_at_ms,
                now_ms=now_ms,
            )

        self._is_untold = True
        if failed(self._known).left_ms(now_ms) > ALONE_MS:
            # This process may end before the table is asked again, and others would never know.
            self._alone_until_ms = 0
        self._known = self._shared(lambda: self._written(failed), lambda: failed(self._known))
        return replace(failure, retry_after_s=self._known.left_ms(now_ms) / 1_000)

    def _claim(self) -> bool:
        """Return whether this process asks after a pause: it is the one whose write is the first."""
        asked = self._known.asked(self._clock(), self._longest_ms)
        stored = self._shared(lambda: self._records.write(asked), lambda: asked)
        self._known = stored or self._known
        return stored is not None

    def _tell(self) -> EndpointState:
        """Write what this process saw alone, unless others have seen a pause that is longer."""

        def later(before: EndpointState | None) -> EndpointState:
            if before and before.paused_until_ms >= self._known.paused_until_ms:
                return before
            return replace(self._known, revision=before.revision if before else NEW)

        return self._written(later)

    def _written(self, change: Callable[[EndpointState | None], EndpointState]) -> EndpointState:
        state = self._records.change(change, self._healthy.endpoint)
        self._is_untold = False
        return state

    def _read(self) -> EndpointState:
        return self._records.read(self._healthy.endpoint) or self._healthy

    def _shared(self, call: Callable[[], T], alone: Callable[[], T]) -> T:
        """Return what `call` to the table returns; while the table does not answer, what `alone` does."""
        now_ms = self._clock()
        if not now_ms < self._alone_until_ms <= now_ms + ALONE_MS:
            try:
                return call()
            except (ClientError, BotoCoreError, ConflictError, RecordError) as error:
                self._alone_until_ms = now_ms + ALONE_MS
                logger.warning(
                    "the record of an endpoint is out of reach: this process goes by what it has seen itself",
                    endpoint=self._healthy.endpoint,
                    error=str(error),
                )
        return alone()

    def _not_asked(self, left_ms: int) -> PostFailure:
        known = self._known
        return PostFailure(
            known.reason,
            f"not tried: {known.detail}",
            known.status,
            is_general=True,
            retry_after_s=left_ms / 1_000,
            failed_at_ms=known.failed_at_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Posting:
    """Posts events to `endpoint` as `webhook` says, in the name of `origin`."""

    webhook: Webhook
    origin: str
    endpoint: HttpSink
    keys: Keys
    pace: Rate
    breaker: Breaker
    clock: Clock
    sleep: Callable[[float], None]

    def attempt(self, event: Envelope, remaining_ms: Callable[[], int]) -> int | PostFailure:
        """The HTTP status by which the endpoint took `event`, or why it did not.

        Raises `NoTimeError`, and `EnvelopeError` for an event that cannot be written as a request.
        """
        if failure := self.breaker.pause():
            return failure
        request = to_request(event, self.webhook.mode)
        try:
            keys = self.keys()
        except SigningKeyError as error:
            logger.error("nothing is sent unsigned", error=str(error))
            return PostFailure(Reason.ENDPOINT_FAILED, str(error), None, is_general=True)
        wait_ms = self.pace.wait_ms()
        if remaining_ms() < RESERVE_MS + wait_ms + 1_000 * self.webhook.timeout_s:
            raise NoTimeError(max(1, round(wait_ms / 1_000)))
        if wait_ms:
            self.sleep(wait_ms / 1_000)
        if failure := self.breaker.enter():
            return failure
        sent_at_ms = self.clock()
        signed = signature_headers(keys, request.id, sent_at_ms // 1_000, request.body)
        own = {"webhook-request-origin": self.origin, "user-agent": "eventplane"}
        self.pace.take()
        status = 0
        try:
            answer = self.endpoint.send("POST", {**request.headers, **own, **signed}, request.body)
            status, failure = answer.status, judge(answer, self.clock())
        except UnreachableError as error:
            failure = PostFailure(Reason.ENDPOINT_FAILED, error.detail, None, is_general=True)
        except ForbiddenTargetError as error:
            # Tried again, as others are: a resolver that is wrong for a minute must not cost an alarm.
            failure = PostFailure(Reason.ENDPOINT_FORBIDDEN, error.detail, None, is_general=True)
        return self.breaker.learn(failure, sent_at_ms) or status
