"""The exchange with AWS IoT's fleet provisioning, without I/O.

Two requests, each with an answer: `create` returns a certificate and a token for it, `register` makes the
template attach it to the device. Source: AWS IoT developer guide, "Device provisioning MQTT API".
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from eventplane.topics import CREATE_FROM_REQUEST_TOPIC, CREATE_WITH_KEY_TOPIC, answer_topics, register_topic
from parts.provisioning import AnswerError, RejectedError, WrongThingError

Ask = Callable[[str, str, bytes], tuple[str, bytes]]
"""Publishes the request of a step, which names it in errors, to a topic, with a payload. Returns topic and
payload of the answer, which came on one of the request's `answer_topics`."""

Keep = Callable[[str, str | None], None]
"""Stores a certificate, and its key if the cloud generated it."""


class Exchange(NamedTuple):
    """One run. `signing_request` (PEM) is for a key of the device; None: the cloud generates the key."""

    template: str
    thing: str
    signing_request: str | None

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics of the answers. Subscribe before the first request, or its answer is lost."""
        return answer_topics(self._create_topic) + answer_topics(register_topic(self.template))

    def run(self, ask: Ask, keep: Keep) -> None:
        """Get a certificate, have it kept, and register it as the thing's.

        Raises `RejectedError`, `AnswerError`, `WrongThingError`.
        """
        request = self.signing_request
        asked = {} if request is None else {"certificateSigningRequest": request}
        created = _Answer(ask, "create", self._create_topic, asked)
        certificate = created.text("certificatePem")
        private_key = created.text("privateKey") if request is None else None
        token = created.text("certificateOwnershipToken")
        keep(certificate, private_key)
        # The template's one parameter, which makes the device's name.
        body = {"certificateOwnershipToken": token, "parameters": {"SerialNumber": self.thing}}
        name = _Answer(ask, "register", register_topic(self.template), body).text("thingName")
        if name != self.thing:
            raise WrongThingError(self.thing, name)

    @property
    def _create_topic(self) -> str:
        return CREATE_WITH_KEY_TOPIC if self.signing_request is None else CREATE_FROM_REQUEST_TOPIC


class _Answer:
    """The answer to the request of a `step`. Raises `RejectedError`, `AnswerError`."""

    def __init__(self, ask: Ask, step: str, topic: str, body: dict[str, Any]) -> None:
        answered_on, payload = ask(step, topic, json.dumps(body).encode())
        self._step = step
        try:
            self._body = json.loads(payload)
        except (ValueError, RecursionError) as error:
            raise AnswerError(step, "it is not JSON") from error
        if not isinstance(self._body, dict):
            raise AnswerError(step, "it is no JSON object")
        if answered_on == answer_topics(topic)[1]:
            status = self._body.get("statusCode")
            code, text = (str(self._body.get(name, "")) for name in ("errorCode", "errorMessage"))
            raise RejectedError(step, status if isinstance(status, int) else 0, code, text)

    def text(self, name: str) -> str:
        value = self._body.get(name)
        if not isinstance(value, str) or not value:
            raise AnswerError(self._step, f"{name!r} is missing")
        return value
