"""Cloud services that read their inbox queues, and how what they receive is identified."""

import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from time import monotonic
from typing import Any, Final, NamedTuple, Self

from cloudevents.core.exceptions import BaseCloudEventException
from cloudevents.core.formats.json import JSONFormat

from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.device_reports import REPORT_PREFIX, STARTED
from eventplane.envelope import parse_event
from eventplane.errors import EnvelopeError
from eventplane.names import NOTICE, NOTICE_OF_MANY
from eventplane_aws.rules import SQS_BATCH
from eventplane_client.delivery import Delivery
from eventplane_client.packs import UnpackingTransport
from eventplane_client.ports import Transport
from eventplane_client.receipts import Receipts
from eventplane_client.sqs import SqsTransport
from eventplane_client.system import SYSTEM
from lab.cloud import ENVIRONMENT
from lab.oracle import Arrived, Key

_LONG_POLL_S: Final = 1
"""How long a read waits for the first message. Short, because stopping waits for it as well."""

UNREADABLE: Final = "unreadable"

_SDK: Final = JSONFormat()


def open_inbox(service: str, sqs: Any, queue_url: str) -> UnpackingTransport:
    """Return the inbox of `service` as the client library reads it, but without a filter: copies come out."""
    receipts = Receipts(service, ENVIRONMENT, sqs, SYSTEM)
    transport = SqsTransport(
        service, sqs, inbox=queue_url, outbox="", visibility_s=0, max_receives=0, receipts=receipts
    )
    return UnpackingTransport(transport)


def read_batch(inbox: Transport, handle: Callable[[list[str]], object]) -> None:
    """Receive messages, `handle` their texts, and acknowledge them, or return if none come.

    As with the client library, the inbox's receipts go first; what is no event leaves none. A message that
    cannot be deleted is redelivered. Raises `UnavailableError`.
    """
    messages, receipts = inbox.receive(SQS_BATCH.most, _LONG_POLL_S), inbox.receipts
    handle([message.body.decode("utf-8", "surrogatepass") for message in messages])
    for message in messages:
        with suppress(EnvelopeError):
            settled = Delivery(parse_event(message.body), message, b"", received_s=monotonic())
            if receipts:
                receipts.add(settled)
    if messages:
        inbox.acknowledge(messages)


def identify(text: str) -> tuple[Key, bool]:
    """Return the key of the event in `text`, and whether it is a report whose number cannot be known.

    The key of what is no CloudEvent is `UNREADABLE` and its SHA-256, which the oracle never expects.
    """
    try:
        return _identify(json.loads(text))
    except (ValueError, LookupError, TypeError, AttributeError):
        return _unreadable(text), False


def _unreadable(text: str) -> Key:
    return UNREADABLE, sha256(text.encode()).hexdigest()


def is_cloud_event(text: str) -> bool:
    """Return whether the CloudEvents SDK reads `text`, as applications do, without our own checks."""
    try:
        _SDK.read(None, text)
    except (BaseCloudEventException, ValueError, LookupError, TypeError, AttributeError):
        # The SDK raises all of these for a text that is no event.
        return False
    return True


def _identify(event: Mapping[str, Any]) -> tuple[Key, bool]:
    type, source, id = event["type"], event["source"], event["id"]
    if event["specversion"] != "1.0":
        raise ValueError("no version of CloudEvents that the plane sends")
    if type == STARTED:
        return (STARTED, source), False
    if type == DEAD_LETTER_TYPE:
        return (event["data"]["reason"], event["data"]["original_sha256"]), False
    return (source, id), type.startswith(REPORT_PREFIX) or type in (NOTICE, NOTICE_OF_MANY)


class ReceivedEvent(NamedTuple):
    """The members of an event that the report shows, and when `service` received it (Unix milliseconds)."""

    service: str
    event: Mapping[str, Any]
    arrived_ms: int


Keep = Callable[[str, Mapping[str, Any]], bool]
"""Whether an event, by the members of its JSON, is kept that a service received."""


@dataclass
class _Received:
    """What a service received: each key once in the order of first reception, and the duplicates."""

    events: dict[Key, None] = field(default_factory=dict)
    reports: dict[Key, None] = field(default_factory=dict)
    duplicates: int = 0


class InboxReaders(ABC):
    """Reads and empties the queues at `urls`, by service, each in a thread and with a client of its own.

    Use it in a `with` block.
    """

    def __init__(self, urls: Mapping[str, str], client: Callable[[], Any]) -> None:
        self._tick = threading.Condition()
        self._stopping = threading.Event()
        self._failure: Exception | None = None
        self._threads = [
            threading.Thread(target=self._run, args=(name, client, url), name=f"reader {name}", daemon=True)
            for name, url in urls.items()
        ]

    @abstractmethod
    def _take(self, service: str, texts: Sequence[str]) -> None:
        """Note what a read brought, which may be nothing; `_tick` is held."""

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def raise_failure(self) -> None:
        """Raise the error that ended a service, if one did."""
        if self._failure:
            raise self._failure

    def _run(self, service: str, client: Callable[[], Any], queue_url: str) -> None:
        try:
            inbox = open_inbox(service, client(), queue_url)
            while not self._stopping.is_set():
                read_batch(inbox, partial(self._note, service))
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            self._failure = error
            self._note(service, [])

    def _note(self, service: str, texts: Sequence[str]) -> None:
        with self._tick:
            self._take(service, texts)
            # Every read, empty or not, is a tick.
            self._tick.notify_all()


class Consumers(InboxReaders):
    """The cloud services that read `urls`; they keep the events that `keep` asks for, as they arrived."""

    def __init__(
        self,
        urls: Mapping[str, str],
        client: Callable[[], Any],
        keep: Keep = lambda _service, _event: False,
    ) -> None:
        super().__init__(urls, client)
        self._keep = keep
        self._received = {service: _Received() for service in urls}
        self._kept: list[ReceivedEvent] = []

    @property
    def arrived(self) -> dict[str, Arrived]:
        """Return what each service received so far."""
        with self._tick:
            return {
                service: Arrived(frozenset(each.events), each.duplicates, frozenset(each.reports))
                for service, each in self._received.items()
            }

    @property
    def kept(self) -> list[ReceivedEvent]:
        """The kept events of all services, in the order of their arrival."""
        with self._tick:
            return sorted(self._kept, key=lambda each: each.arrived_ms)

    @property
    def received_total(self) -> int:
        """Events received by all services together, without duplicates."""
        return sum(len(each.events) for each in self._received.values())

    def wait_until(self, condition: Callable[[], bool], timeout_seconds: float) -> bool:
        """Wait until `condition()` holds; False when `timeout_seconds` passed first.

        It is evaluated after every read, so it must be quick. Raises the error that ended a service.
        """
        deadline = monotonic() + timeout_seconds
        while not condition():
            self.raise_failure()
            left = deadline - monotonic()
            if left <= 0:
                return False
            with self._tick:
                self._tick.wait(min(left, _LONG_POLL_S))
        return True

    def _take(self, service: str, texts: Sequence[str]) -> None:
        received = self._received[service]
        for text in texts:
            key, is_report = identify(text) if is_cloud_event(text) else (_unreadable(text), False)
            counted = received.reports if is_report else received.events
            if key in counted:
                received.duplicates += 1
                continue
            counted[key] = None
            if key[0] != UNREADABLE and self._keep(service, event := json.loads(text)):
                self._kept.append(ReceivedEvent(service, event, time.time_ns() // 1_000_000))
