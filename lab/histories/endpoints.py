"""HTTPS endpoints that events are posted to, and the connections to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from eventplane.envelope import parse_event
from lab.histories.engine import Engine
from lab.histories.wires import CurrentFaults
from parts.webhooks.endpoint import EndpointResponse, HttpSink, UnreachableError

ANSWERS_S: Final = 0.03
"""How long an endpoint takes, seconds, each way."""


@dataclass(frozen=True, slots=True)
class Post:
    """An event that was posted: when it was sent and answered, and how; `status` is 0 without an answer."""

    at_s: float
    id: str
    source: str
    answered_s: float
    status: int
    retry_after_s: float


@dataclass
class EndpointModel:
    """An endpoint; `fault` is what it does instead of taking events.

    A status, with the seconds of a Retry-After behind it; `down`; or `slow`: it takes the event, and the
    answer comes too late.
    """

    engine: Engine
    weather: CurrentFaults
    url: str
    fault: str = ""
    posts: list[Post] = field(default_factory=list)

    def answer(self, method: str, body: bytes, timeout_s: float) -> EndpointResponse:
        """Handle a request."""
        engine, sent_s = self.engine, self.engine.now_s
        engine.sleep(ANSWERS_S + 0.02 * self.weather.share())
        kind, _, retry_after = (self.fault or "204").partition(" ")
        status = int(kind) if kind.isdigit() else 0
        engine.sleep(ANSWERS_S if status else timeout_s)
        if method == "POST":
            event = parse_event(body)
            # What is slow has the event all the same.
            taken = 204 if kind == "slow" else status
            self.posts.append(
                Post(sent_s, event.id, event.source, engine.now_s, taken, float(retry_after or 0))
            )
            engine.note(self.url, f"{event.id}: {kind}", is_fault=bool(self.fault))
        if not status:
            raise UnreachableError(f"no answer within {timeout_s:g} s")
        headers = {"webhook-allowed-origin": "*"} if method == "OPTIONS" else {}
        if retry_after:
            headers["retry-after"] = retry_after
        return EndpointResponse(status, HTTPStatus(status).phrase, headers, "")


class EndpointConnection(HttpSink):
    """Stands in for `HttpSink`, without a socket."""

    def __init__(self, model: EndpointModel, timeout_s: float) -> None:
        self._model = model
        self._timeout_s = timeout_s

    def send(self, method: str, headers: Mapping[str, str], body: bytes = b"") -> EndpointResponse:  # noqa: ARG002
        return self._model.answer(method, body, self._timeout_s)

    def close_if_idle(self) -> None:
        """There is nothing to close."""

    def close(self) -> None:
        """There is nothing to close."""
