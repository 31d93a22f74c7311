"""What an endpoint's answer means for an event: taken, refused for good, or worth another attempt."""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final

from lambdas.http_sink.endpoint import Answer

REFUSED: Final = "endpoint_refused"
GONE: Final = "endpoint_gone"
MOVED: Final = "endpoint_moved"
FAILED: Final = "endpoint_failed"
FORBIDDEN: Final = "endpoint_forbidden"
"""Reasons of dead letters: the endpoint refuses the event, is gone, has moved, failed until the limit, or led
until then to an address that nothing may be sent to."""

_TRY_AGAIN: Final = frozenset({408, 425, 429})
"""Client errors that say nothing against the request: RFC 9110, RFC 8470, RFC 6585."""

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
    return Failure(FAILED, detail, None, is_general=True)


def forbidden(detail: str) -> Failure:
    """The failure of an attempt that was not made: the endpoint's host leads where nothing may be sent to.

    It is tried again, as long as others are: a resolver that is wrong for a minute must not cost an alarm.
    """
    return Failure(FORBIDDEN, detail, None, is_general=True)


def judge(answer: Answer, now_ms: int) -> Failure | None:
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
        return Failure(MOVED, detail, status, is_permanent=True)
    if 400 <= status < 500 and status not in _TRY_AGAIN:
        return Failure(GONE if status == 410 else REFUSED, detail, status, is_permanent=True)
    return Failure(
        FAILED,
        detail,
        status,
        is_general=status in _BUSY,
        retry_after_s=_retry_after_s(answer.headers.get("retry-after", ""), now_ms),
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
