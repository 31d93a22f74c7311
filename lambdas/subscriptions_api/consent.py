"""The consent of a sink, asked when it is subscribed (CloudEvents' abuse protection for HTTP webhooks)."""

from __future__ import annotations

from contextlib import closing
from typing import Final

from eventplane.contract import Problem
from lambdas.common.clock import Clock
from lambdas.common.sink_reach import SinkReach
from lambdas.subscriptions_api.errors import InvalidError
from lambdas.webhook.endpoint import Endpoint, ForbiddenTargetError, UnreachableError
from lambdas.webhook.handshake import ask_consent

TIMEOUT_S: Final = 5
"""How long a sink may take to answer, seconds."""


class Consents:
    """Asks endpoints within `reach`, in the name of `origin`."""

    def __init__(self, origin: str, clock: Clock, reach: SinkReach) -> None:
        self._origin = origin
        self._reach = reach
        self._clock = clock

    def ask(self, url: str, rate: int | None) -> int | None:
        """How many requests a minute the sink at `url` allows, None without a limit; `rate` are wanted.

        Raises `InvalidError` where it does not answer or does not consent.
        """
        with closing(Endpoint(url, timeout_s=TIMEOUT_S, clock=self._clock, reach=self._reach)) as endpoint:
            try:
                consent = ask_consent(endpoint, self._origin, rate)
            except UnreachableError as error:
                raise _refused(f"it does not answer: {error.detail}") from error
            except ForbiddenTargetError as error:
                problem = Problem("sink", error.detail, "use a host whose addresses are all public")
                raise InvalidError("the sink cannot be posted to; see `problems`", [problem]) from error
        if not consent.is_given:
            raise _refused(f"it answers {consent.status} without WebHook-Allowed-Origin for {self._origin}")
        if consent.requests_per_minute == 0:
            raise _refused("it allows no requests")
        return consent.requests_per_minute


def _refused(message: str) -> InvalidError:
    remedy = "let the endpoint answer OPTIONS as docs/subscriptions-api.md says"
    return InvalidError("the sink does not consent; see `problems`", [Problem("sink", message, remedy)])
