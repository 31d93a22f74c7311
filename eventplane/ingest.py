"""The frame that the IoT rule makes of a publish: the payload with what IoT Core knows about its sender.

The rule selects `encode(*, 'base64') AS data, topic() AS topic, clientid() AS clientid,
principal() AS principal, timestamp() AS timestamp`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from eventplane.attributes import value_problem
from eventplane.batch import unpack
from eventplane.device_reports import short_digest
from eventplane.envelope import Envelope
from eventplane.errors import EnvelopeError
from eventplane.expiry import expires_at_ms
from eventplane.names import DELIVER_BY, PLANE_CLIENT, SENDER_DEVICE, SENT_TIME
from eventplane.reasons import Reason
from eventplane.values import MAX_TIME_MS, whole_number

RULE_SELECT = (
    "encode(*, 'base64') AS data, topic() AS topic, clientid() AS clientid, "
    "principal() AS principal, timestamp() AS timestamp"
)


@dataclass(frozen=True, slots=True)
class Accepted:
    """One item of a payload, `index` from 0: an event, or malformed bytes and the reason.

    `expires_at_ms` is when the event expires by the clock of its acceptance, Unix milliseconds; None: never.
    """

    index: int
    event: Envelope | None
    original: bytes
    error: EnvelopeError | None
    expires_at_ms: int | None = None

    @property
    def digest(self) -> str | None:
        """The `short_digest` of the event, None of what is none."""
        return short_digest(self.original) if self.event else None


OPERATOR: Final = "operator"
"""The principal of a frame that an operator puts back: no certificate brought it."""


@dataclass(frozen=True, slots=True)
class IngestFrame:
    """One accepted publish: `payload` as sent, `accepted_at_ms` by IoT Core's clock.

    `client_id` is the connection that brought it, which the IoT policy binds to the certificate `principal`.
    """

    payload: bytes
    topic: str
    client_id: str
    principal: str
    accepted_at_ms: int

    @property
    def put_back_by(self) -> str | None:
        """The name of the operator's run that put it back into the channel; None where a device sent it."""
        return OPERATOR if self.principal == OPERATOR else None

    def items(self) -> Iterator[Accepted]:
        """Yield the payload's items; a payload that cannot be read at all is one refused item."""
        index = 0
        try:
            for item in unpack(self.payload):
                if isinstance(item, Envelope):
                    # Each sending states it anew, so it is not of the event, nor of the event's digest.
                    event = item.without((SENT_TIME,))
                    # Only a router says `deliverby`: a device that did could make its event live for ever.
                    ends_ms = expires_at_ms(item.without((DELIVER_BY,)), self.accepted_at_ms)
                    yield Accepted(index, event, event.json.encode("utf-8"), None, ends_ms)
                else:
                    yield Accepted(index, None, *item)
                index += 1
        except EnvelopeError as error:
            yield Accepted(index, None, self.payload, error)


def _client_id(value: object) -> str:
    """Return the name of a thing, or of the plane itself. Raises ValueError if it is ambiguous."""
    text = str(value)
    if text != PLANE_CLIENT and (not text or "/" in text or value_problem(SENDER_DEVICE, text)):
        raise ValueError(f"client id {text!r:.200} is not the name of a thing")
    return text


def frame_text(frame: IngestFrame) -> str:
    """Return the message body that the ingest rule makes of a publish."""
    return json.dumps(
        {
            "data": base64.b64encode(frame.payload).decode("ascii"),
            "topic": frame.topic,
            "clientid": frame.client_id,
            "principal": frame.principal,
            "timestamp": frame.accepted_at_ms,
        }
    )


def parse_frame(body: str) -> IngestFrame:
    """Return the frame in a queue message's `body`. Raises `EnvelopeError` (`bad_frame`)."""
    try:
        members = json.loads(body)
        return IngestFrame(
            payload=base64.b64decode(members["data"], validate=True),
            topic=str(members["topic"]),
            client_id=_client_id(members["clientid"]),
            principal=str(members.get("principal", "")),
            accepted_at_ms=whole_number(members["timestamp"], MAX_TIME_MS),
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise EnvelopeError(Reason.BAD_FRAME, f"not a frame of the ingest rule: {error!r}") from error
