"""The exchange with AWS IoT's fleet provisioning, as a state machine without I/O.

Two requests, each with an answer: `create` returns a certificate and a token for it, `register` makes the
template attach it to the device. Source: AWS IoT developer guide, "Device provisioning MQTT API".
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from edge.provisioning import AnswerError, RejectedError, WrongThingError
from eventplane.topics import CREATE_FROM_REQUEST_TOPIC, CREATE_WITH_KEY_TOPIC, answer_topics, register_topic

CREATE: Final = "create"
REGISTER: Final = "register"


@dataclass(frozen=True, slots=True)
class Request:
    """A request to publish; `step` names it in errors."""

    step: str
    topic: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class Created:
    """A certificate, and its key if the cloud generated it. Store both before sending `then`."""

    certificate: str
    private_key: str | None
    then: Request


@dataclass(frozen=True, slots=True)
class Registered:
    """The certificate is registered as the thing's."""


class Exchange:
    """One run. `signing_request` (PEM) is for a key of the device; None: the cloud generates the key."""

    def __init__(self, template: str, thing: str, signing_request: str | None) -> None:
        self._thing = thing
        self._cloud_generates_key = signing_request is None
        self._create = CREATE_WITH_KEY_TOPIC if signing_request is None else CREATE_FROM_REQUEST_TOPIC
        self._register = register_topic(template)
        body = {} if signing_request is None else {"certificateSigningRequest": signing_request}
        self.first = Request(CREATE, self._create, _json(body))
        self._step = CREATE

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics of the answers. Subscribe before the first request, or its answer is lost."""
        return answer_topics(self._create) + answer_topics(self._register)

    def answer(self, topic: str, payload: bytes) -> Created | Registered | None:
        """Return the result of a message; None if it is not of the present step (QoS 1 redelivers).

        Raises `RejectedError`, `AnswerError`, `WrongThingError`.
        """
        accepted, rejected = answer_topics(self._create if self._step == CREATE else self._register)
        if topic not in (accepted, rejected):
            return None
        body = self._read(payload)
        if topic == rejected:
            status = body.get("statusCode")
            raise RejectedError(
                self._step,
                status if isinstance(status, int) else 0,
                str(body.get("errorCode", "")),
                str(body.get("errorMessage", "")),
            )
        return self._created(body) if self._step == CREATE else self._registered(body)

    def _created(self, body: dict[str, Any]) -> Created:
        certificate = self._text(body, "certificatePem")
        private_key = self._text(body, "privateKey") if self._cloud_generates_key else None
        token = self._text(body, "certificateOwnershipToken")
        self._step = REGISTER
        # The template's one parameter, which makes the device's name.
        parameters = {"SerialNumber": self._thing}
        payload = _json({"certificateOwnershipToken": token, "parameters": parameters})
        return Created(certificate, private_key, Request(REGISTER, self._register, payload))

    def _registered(self, body: dict[str, Any]) -> Registered:
        name = self._text(body, "thingName")
        if name != self._thing:
            raise WrongThingError(self._thing, name)
        return Registered()

    def _read(self, payload: bytes) -> dict[str, Any]:
        try:
            body = json.loads(payload)
        except (ValueError, RecursionError) as error:
            raise AnswerError(self._step, "it is not JSON") from error
        if not isinstance(body, dict):
            raise AnswerError(self._step, "it is no JSON object")
        return body

    def _text(self, body: dict[str, Any], name: str) -> str:
        value = body.get(name)
        if not isinstance(value, str) or not value:
            raise AnswerError(self._step, f"{name!r} is missing")
        return value


def _json(body: dict[str, Any]) -> bytes:
    return json.dumps(body).encode()
