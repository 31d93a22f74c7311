"""The cloud services of the demo: each reads its inbox as an application would, and counts for itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self

from cloudevents.core.base import BaseCloudEvent
from cloudevents.core.exceptions import BaseCloudEventException
from cloudevents.core.formats.json import JSONFormat

from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.device_reports import REPORT_PREFIX, STARTED
from eventplane.errors import EnvelopeError
from eventplane.names import NOTICE
from eventplane.sqs_binding import split
from local.oracle import Arrived, Key

_BATCH: Final = 10
"""Most messages of one ReceiveMessage or DeleteMessageBatch call (Amazon SQS quotas)."""

_LONG_POLL_SECONDS: Final = 1
"""How long a read waits for the first message. Short, because stopping waits for it as well."""

UNREADABLE: Final = "unreadable"


@dataclass(frozen=True, slots=True)
class Kept:
    """An event that is shown to people: what `service` received from `device`, and when.

    Times are Unix milliseconds; an event that was sent without a time has none. What the cloud's own
    participants send has no device.
    """

    service: str
    type: str
    subject: str
    data: Mapping[str, Any]
    arrived_ms: int
    device: str = ""
    sent_ms: int | None = None


Keep = Callable[[str, BaseCloudEvent], bool]
"""Whether an event that a service received is kept."""


class Consumer:
    """A service that reads the inbox queue at `queue_url`, in a thread of its own, and deletes what it read.

    `received` has every event's key once, in the order of first reception; a dead letter's key is its reason
    and its original's SHA-256. `duplicates` counts repetitions. A body that is no CloudEvent has `UNREADABLE`
    and its SHA-256 as its key, which the oracle never expects. `reports` has the keys of what is reported of
    devices in its own time; that one started is in `received`. `kept` are the events that `keep` asks for.
    """

    def __init__(self, service: str, sqs: Any, queue_url: str, tick: threading.Condition, keep: Keep) -> None:
        self.service = service
        self.kept: list[Kept] = []
        self._keep = keep
        self.received: dict[Key, None] = {}
        self.reports: dict[Key, None] = {}
        self.duplicates = 0
        self.failure: Exception | None = None
        self._sqs = sqs
        self._queue_url = queue_url
        self._tick = tick
        self._stopping = threading.Event()
        self._format = JSONFormat()
        self._thread = threading.Thread(target=self._run, name=f"consumer {service}", daemon=True)

    @property
    def arrived(self) -> Arrived:
        """What the oracle compares, as of now."""
        with self._tick:
            return Arrived(frozenset(self.received), self.duplicates, frozenset(self.reports))

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask it to end after the read under way."""
        self._stopping.set()

    def join(self) -> None:
        """Wait for its end."""
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._read_once()
        except Exception as error:  # noqa: BLE001 - whatever ended this thread is raised where it is waited for
            self.failure = error
        with self._tick:
            self._tick.notify_all()

    def _read_once(self) -> None:
        answer = self._sqs.receive_message(
            QueueUrl=self._queue_url, MaxNumberOfMessages=_BATCH, WaitTimeSeconds=_LONG_POLL_SECONDS
        )
        messages = answer.get("Messages", [])
        with self._tick:
            for message in messages:
                for text in texts_of(message["Body"]):
                    self._count(text)
            self._tick.notify_all()
        if messages:
            # What cannot be deleted comes again, and is then counted as the duplicate that it is.
            self._sqs.delete_message_batch(
                QueueUrl=self._queue_url,
                Entries=[
                    {"Id": str(index), "ReceiptHandle": message["ReceiptHandle"]}
                    for index, message in enumerate(messages)
                ],
            )

    def _count(self, body: str) -> None:
        counted = self.received
        try:
            event = self._format.read(None, body)
            key = _key(event)
            if comes_in_its_own_time(event.get_type()):
                counted = self.reports
        except (BaseCloudEventException, ValueError, TypeError, AttributeError, KeyError):
            # The SDK raises all of these for a text that is no event.
            key = (UNREADABLE, sha256(body.encode()).hexdigest())
        if key in counted:
            self.duplicates += 1
            return
        counted[key] = None
        if key[0] != UNREADABLE and self._keep(self.service, event):
            self.kept.append(_kept(self.service, event, time.time_ns() // 1_000_000))


class Consumers:
    """All consumers of a run, one for each service in `queue_urls`. Use it in a `with` block.

    They keep the events that `keep` asks for, as they arrived.
    """

    def __init__(
        self, sqs: Any, queue_urls: Mapping[str, str], keep: Keep = lambda _service, _event: False
    ) -> None:
        self._tick = threading.Condition()
        self._consumers = {
            service: Consumer(service, sqs, url, self._tick, keep) for service, url in queue_urls.items()
        }

    def __enter__(self) -> Self:
        for consumer in self.all:
            consumer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for consumer in self.all:
            consumer.stop()
        for consumer in self.all:
            consumer.join()

    @property
    def all(self) -> Sequence[Consumer]:
        """The consumers, in the order of `queue_urls`."""
        return list(self._consumers.values())

    @property
    def arrived(self) -> dict[str, Arrived]:
        """What each service received so far."""
        return {service: consumer.arrived for service, consumer in self._consumers.items()}

    @property
    def kept(self) -> list[Kept]:
        """The kept events of all services, in the order of their arrival."""
        with self._tick:
            return sorted((each for one in self.all for each in one.kept), key=lambda each: each.arrived_ms)

    @property
    def received_total(self) -> int:
        """Events received by all services together, repetitions not counted: what a progress bar shows."""
        return sum(len(consumer.received) for consumer in self.all)

    def raise_failure(self) -> None:
        """Raise what a consumer ended with, if one has."""
        for consumer in self.all:
            if consumer.failure is not None:
                raise consumer.failure

    def wait_until(self, condition: Callable[[], bool], timeout_seconds: float) -> bool:
        """Wait until `condition()` holds; False when `timeout_seconds` passed first.

        It is asked after every read, so it must be quick. Raises what a consumer ended with.
        """
        deadline = monotonic() + timeout_seconds
        while not condition():
            self.raise_failure()
            left = deadline - monotonic()
            if left <= 0:
                return False
            with self._tick:
                # Every consumer's read, empty or not, is a tick: at least one a long poll.
                self._tick.wait(min(left, _LONG_POLL_SECONDS))
        return True


def _kept(service: str, event: BaseCloudEvent, arrived_ms: int) -> Kept:
    data: Any = event.get_data()
    # The time of a replayed reading is years old: what the sender records of the sending goes first.
    recorded = event.get_extension("recordedtime")
    sent = datetime.fromisoformat(recorded) if recorded else event.get_time()
    return Kept(
        service,
        event.get_type(),
        event.get_subject() or "",
        data,
        arrived_ms,
        device=event.get_extension("senderdevice") or "",
        sent_ms=round(sent.timestamp() * 1000) if sent else None,
    )


def comes_in_its_own_time(type: str) -> bool:
    """Whether nobody can say how many events of `type` there must be: what is reported of devices."""
    return (type.startswith(REPORT_PREFIX) and type != STARTED) or type == NOTICE


def key_of(type: str, source: str, id: str, data: Any) -> Key:
    """What an event that arrived is known by. Raises TypeError and KeyError for a letter that is none."""
    if type == STARTED:
        return STARTED, source
    if type != DEAD_LETTER_TYPE:
        return source, id
    if not isinstance(data, dict):
        raise TypeError("a dead letter has a JSON object as its data")
    return data["reason"], data["original_sha256"]


def texts_of(body: str) -> list[str]:
    """Return the texts of the events in a message's `body`; what cannot be split is one as it came."""
    try:
        return split(body) or [body]
    except EnvelopeError:
        return [body]


def _key(event: BaseCloudEvent) -> Key:
    return key_of(event.get_type(), event.get_source(), event.get_id(), event.get_data())
