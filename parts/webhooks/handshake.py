"""The endpoint's consent: the abuse protection of CloudEvents' HTTP webhooks, asked before a deploy.

Not at first contact: an address gets into an environment by people who know its owner, and an endpoint
without the handshake, or one that is down when a function starts, must not keep an alarm from being tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from eventplane.values import whole_number
from parts.webhooks.endpoint import HttpSink

MAX_RATE: Final = 60_000
"""Most requests a minute that are a limit: beyond that a limit says nothing."""


@dataclass(frozen=True, slots=True)
class Consent:
    """The permission of an endpoint. `requests_per_minute` is None where it sets no limit."""

    is_given: bool
    requests_per_minute: int | None
    status: int


def ask_consent(endpoint: HttpSink, origin: str, requests_per_minute: int | None) -> Consent:
    """Ask `endpoint` whether it wants events of `origin`, and how many.

    Raises `UnreachableError`, `ForbiddenTargetError`.
    """
    headers = {"webhook-request-origin": origin}
    if requests_per_minute is not None:
        headers["webhook-request-rate"] = str(requests_per_minute)
    answer = endpoint.send("OPTIONS", headers)
    allowed = answer.headers.get("webhook-allowed-origin", "").strip().lower()
    rate = answer.headers.get("webhook-allowed-rate", "").strip()
    # The headers alone count: many servers answer OPTIONS with 200 and mean nothing by it.
    return Consent(
        is_given=allowed in ("*", origin.lower()),
        requests_per_minute=_requests_per_minute(rate),
        status=answer.status,
    )


def _requests_per_minute(allowed: str) -> int | None:
    """What WebHook-Allowed-Rate says; None for an asterisk, and for what is no number up to `MAX_RATE`."""
    try:
        return whole_number(allowed, MAX_RATE)
    except ValueError:
        return None
