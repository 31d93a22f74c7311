"""Brings what a cloud service puts over NATS to its outbox queue, which feeds its router.

AWS Lambda reads no stream. The relay runs with the rights of the service, so that the plane stamps its name.
It passes on malformed events as well: their dead letters are the router's business, and show in Python's
notation what Amazon SQS does not take. Of one that is too large it passes on as much as shows that: Amazon
SQS would never take it, and the relay would try for ever.
"""

import logging
import re
import threading
from typing import Any, Final, Self

from eventplane.envelope import parse_event
from eventplane.errors import EnvelopeError
from eventplane.limits import MAX_EVENT_BYTES
from eventplane.resource_names import queue_name
from eventplane_client.aws import unavailable
from eventplane_client.errors import UnavailableError
from eventplane_nats.streams import stream_name
from eventplane_nats.transport import NatsTransport

_log = logging.getLogger(__name__)

_BATCH: Final = 10
_WAIT_S: Final = 20.0
_RETRY_S: Final = 1.0
"""Wait before a queue that does not answer is asked again, seconds. It costs an event no receive."""

# Amazon SQS takes the characters of XML 1.0. An event has others inside JSON strings only, where an escape
# means the same.
_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Relay:
    """Relays the outbox of `participant` in `environment`, from `server` to SQS through a boto3 client `sqs`.

    Raises `UnavailableError` if one of the two does not answer.
    """

    def __init__(self, participant: str, server: str, environment: str, sqs: Any) -> None:
        self._participant = participant
        self._sqs = sqs
        name = queue_name(environment, f"{participant}-outbox")
        with unavailable(participant):
            self._queue = str(sqs.get_queue_url(QueueName=name)["QueueUrl"])
        stream = stream_name(environment, f"{participant}.outbox")
        self._stream = NatsTransport.find(participant, server, inbox=stream, outbox=stream)
        self._ended = threading.Event()

    def run(self) -> None:
        """Relay until `stop`. Raises `UnavailableError` if NATS does not answer."""
        while not self._ended.is_set():
            self.relay(_WAIT_S)

    def relay(self, wait_s: float) -> int:
        """Relay what is there, waiting up to `wait_s` seconds for the first event; return how many were.

        An event is acknowledged when SQS has stored it. Raises `UnavailableError` if NATS does not answer.
        """
        held = self._stream.receive(_BATCH, wait_s)
        for at, message in enumerate(held):
            while not self._is_stored(message.body):
                self._stream.extend(held[at:])
                if self._ended.wait(_RETRY_S):
                    for each in held[at:]:
                        self._stream.release(each, 0)
                    return at
            self._stream.acknowledge([message])
        return len(held)

    def stop(self) -> None:
        """End after the event in hand; what is left of its batch comes again. Another thread may call it."""
        self._ended.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def _is_stored(self, body: bytes) -> bool:
        try:
            with unavailable(self._participant):
                self._sqs.send_message(QueueUrl=self._queue, MessageBody=sqs_text(body))
        except UnavailableError as error:
            _log.warning("the outbox queue does not answer: %s", error)
            return False
        return True


def sqs_text(body: bytes) -> str:
    """Return a text that Amazon SQS takes: the same event, or for a malformed `body` a malformed text."""
    kept = body[: MAX_EVENT_BYTES + 1]
    try:
        text = kept.decode()
        if _NOT_XML.search(text):
            parse_event(text)
            text = _NOT_XML.sub(lambda each: f"\\u{ord(each[0]):04x}", text)
    except (UnicodeDecodeError, EnvelopeError):
        # Characters replaced, it might be a valid event that was never sent. Python's notation is not JSON.
        text = repr(kept)
    return text or " "  # SQS refuses an empty text; no text is an event either
