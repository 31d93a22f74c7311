"""The state of an endpoint that failed: one record for all processes that post to it. No I/O.

An endpoint without a record is healthy. Times are in Unix milliseconds unless a name says otherwise.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Final

from eventplane.reasons import Reason
from eventplane.records import NEW, RecordKind
from eventplane.sinks import GONE_S

ENDPOINTS_TABLE: Final = "endpoints"
"""The name of an environment's table, before `resource_name`."""

EXPIRES: Final = "expires"
"""The attribute after which DynamoDB removes an item, Unix seconds."""

BREAK_FIRST_S: Final = 2
BREAK_LONGEST_S: Final = 60
"""How long nothing is sent to an endpoint after its first failure, and after many, seconds."""

LONGEST_ASKED_S: Final = 900
"""Most of a Retry-After that is honoured, seconds: an endpoint cannot put an alarm off for ever."""

_KEPT_S: Final = 86_400
"""How long a record outlives its pause, seconds. Ours: so an endpoint that is not used is forgotten."""

_MAX_DETAIL: Final = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointState:
    """An endpoint that failed `failures` times in a row since `failing_since_ms`, at last at `failed_at_ms`.

    Nothing is sent before `paused_until_ms`. Then one process sends a request; the others wait for its result
    until `asking_until_ms` at most, because that process may be killed.
    """

    endpoint: str
    paused_until_ms: int = 0
    asking_until_ms: int = 0
    failing_since_ms: int = 0
    failed_at_ms: int = 0
    failures: int = 0
    reason: str = ""
    detail: str = ""
    status: int | None = None
    expires: int = 0
    revision: int = NEW

    def left_ms(self, now_ms: int) -> int:
        """Return for how long nothing may be sent yet, milliseconds; 0 if something may."""
        return max(self.paused_until_ms - now_ms, self.asking_until_ms - now_ms, 0)

    def asked(self, now_ms: int, longest_ms: int) -> EndpointState:
        """Return the state in which one process asks, which takes `longest_ms` at most."""
        # The hour begins with the request, whatever its outcome.
        lease_ms = 1_000 * GONE_S if self.reason == Reason.ENDPOINT_GONE else longest_ms
        return _kept(replace(self, asking_until_ms=now_ms + lease_ms))

    def failed(
        self,
        reason: str,
        detail: str,
        status: int | None,
        *,
        retry_after_s: float | None,
        sent_at_ms: int,
        now_ms: int,
    ) -> EndpointState:
        """Return the state after the failure of a request sent at `sent_at_ms`. The later pause wins."""
        is_gone = reason == Reason.ENDPOINT_GONE
        # A request that was in flight when another one failed shows the same fault, and counts once with it.
        is_new = sent_at_ms > self.failed_at_ms
        failures = self.failures + 1 if is_new else max(self.failures, 1)
        if is_gone:
            pause_s: float = GONE_S
        elif retry_after_s is not None:
            pause_s = min(max(retry_after_s, 1), LONGEST_ASKED_S)
        else:
            pause_s = min(BREAK_LONGEST_S, BREAK_FIRST_S * 2 ** min(failures - 1, 10))
        paused = replace(
            self,
            paused_until_ms=max(self.paused_until_ms, now_ms + round(1_000 * pause_s)),
            failures=failures,
        )
        if is_new or is_gone:
            paused = replace(
                paused,
                asking_until_ms=0,
                failing_since_ms=self.failing_since_ms or now_ms,
                failed_at_ms=now_ms,
                reason=reason,
                detail=detail[:_MAX_DETAIL],
                status=status,
            )
        return _kept(paused)


ENDPOINT: Final = RecordKind(type=EndpointState, key=("endpoint",))
"""How the table keeps its items."""


def endpoint_key(participant: str, url: str) -> str:
    """Return the key of the endpoint at `url`, for the function that posts for `participant`.

    The address may have a secret in its query, and another address is another endpoint.
    """
    return f"{participant}/{hashlib.sha256(url.encode()).hexdigest()[:32]}"


def _kept(state: EndpointState) -> EndpointState:
    return replace(state, expires=max(state.paused_until_ms, state.asking_until_ms) // 1_000 + _KEPT_S)
