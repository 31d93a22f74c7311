"""The endpoint's consent: the abuse protection of CloudEvents' HTTP webhooks, asked before a deploy.

Not at first contact: an address gets into an environment by people who know its owner, and an endpoint
without the handshake, or one that is down when a function starts, must not keep an alarm from being tried.
"""

from __future__ import annotations

from dataclasses import dataclass

from lambdas.webhook.endpoint import Endpoint


@dataclass(frozen=True, slots=True)
class Consent:
    """What an endpoint allows. `requests_per_minute` is None where it sets no limit."""

    is_given: bool
    requests_per_minute: int | None
    status: int


def ask_consent(endpoint: Endpoint, origin: str, requests_per_minute: int | None) -> Consent:
    """Whether `endpoint` wants events of `origin`, and how many. Raises `UnreachableError`."""
    headers = {"webhook-request-origin": origin}
    if requests_per_minute is not None:
        headers["webhook-request-rate"] = str(requests_per_minute)
    answer = endpoint.send("OPTIONS", headers)
    allowed = answer.headers.get("webhook-allowed-origin", "").strip().lower()
    rate = answer.headers.get("webhook-allowed-rate", "").strip()
    # The headers alone count: many servers answer OPTIONS with 200 and mean nothing by it.
    return Consent(
        is_given=allowed in ("*", origin.lower()),
        requests_per_minute=int(rate) if rate.isascii() and rate.isdigit() else None,
        status=answer.status,
    )
