"""What the tests of the operator's commands share."""

import base64
import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from botocore.exceptions import ClientError

from contract import load_contract
from eventplane import resource_names
from eventplane.attributes import AttributeValue
from eventplane.dead_letter import Refusal, dead_letter, letter_id, reason_in
from eventplane.device_reports import HEARTBEAT, MANIFEST
from eventplane.envelope import THE_PLANE, Envelope, Sender, parse_event, write_event
from eventplane.ledger import LedgerRecord, TapRecord, to_line
from eventplane.reasons import Outcome
from eventplane.sqs_binding import to_message

ENVIRONMENT = "test"
READING = "org.eventplane.health.reading.v1"
UPLINK = "device.outbox"
INBOX = "care-analytics-inbox"


Run = Callable[..., tuple[int, str, str]]
"""Runs a command: its exit status, what it printed, and what it reported to the person."""
RunJson = Callable[..., Any]
"""Runs a command with --json; what it printed."""


class Killed(BaseException):
    """Stands for SIGKILL: nothing after it runs, not even what would tidy up."""


class Client:
    """The SQS client that the commands get: without move tasks, and with faults."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.faults: dict[str, Callable[..., Any]] = {}

    def __getattr__(self, name: str) -> Any:
        if name in self.faults:
            return self.faults[name]
        if name == "start_message_move_task":
            return self._unavailable
        return getattr(self.client, name)

    def _unavailable(self, **_: Any) -> Any:
        raise ClientError({"Error": {"Code": "InvalidAction", "Message": "no"}}, "StartMessageMoveTask")


@dataclass
class Plane:
    """Queues of the environment, and its archive."""

    sqs: Any
    s3: Any
    urls: dict[str, str] = field(default_factory=dict)
    bucket: str = resource_names.archive_bucket(ENVIRONMENT, "123456789012", "us-east-1")

    def __post_init__(self) -> None:
        self.client = Client(self.sqs)

    def create_pair(self, name: str, *, is_fifo: bool = False) -> None:
        """A queue and its dead-letter queue."""
        fifo = {"FifoQueue": "true"} if is_fifo else {}
        for each in (name, resource_names.dead_letter_queue(name)):
            full = resource_names.queue_name(ENVIRONMENT, each, is_fifo=is_fifo)
            self.urls[each] = self.sqs.create_queue(QueueName=full, Attributes=fifo)["QueueUrl"]

    def send(self, queue: str, event: Envelope, **more: Any) -> str:
        """Put `event` into a queue as a router does; the message's id."""
        message = to_message(event, {"route": "a-route", "contract": "0123456789abcdef"})
        hints = {name: {"DataType": "String", "StringValue": value} for name, value in message.hints.items()}
        sent = self.sqs.send_message(
            QueueUrl=self.urls[queue], MessageBody=message.body, MessageAttributes=hints, **more
        )
        return str(sent["MessageId"])

    def count(self, queue: str) -> int:
        """How many messages a queue has, hidden ones included."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.sqs.get_queue_attributes(QueueUrl=self.urls[queue], AttributeNames=names)["Attributes"]
        return sum(int(found[name]) for name in names)

    def received(self, queue: str) -> list[dict[str, Any]]:
        """All messages that a reader of a queue gets now."""
        found: list[dict[str, Any]] = []
        while page := self.sqs.receive_message(
            QueueUrl=self.urls[queue],
            MaxNumberOfMessages=10,
            MessageAttributeNames=["All"],
            MessageSystemAttributeNames=["All"],
        ).get("Messages"):
            found += page
        return found

    def archive(
        self, folder: str, lines: list[str], name: str = "one", date: str | None = None, hour: str = "12"
    ) -> str:
        """Write an object of the archive, of today (UTC) unless another date is given."""
        day = date or f"{datetime.now(UTC):%Y-%m-%d}"
        key = f"{folder}/date={day}/hour={hour}/{name}.json.gz"
        self.s3.put_object(Bucket=self.bucket, Key=key, Body=packed(lines))
        return key


def packed(lines: list[str]) -> bytes:
    """An object of the archive with these lines."""
    return gzip.compress("".join(f"{line}\n" for line in lines).encode())


class MemoryArchive:
    """An archive in memory."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def write(self, name: str, *lines: str) -> None:
        self.objects[name] = packed(list(lines))

    def names(self, prefix: str) -> Iterator[str]:
        return (each for each in self.objects if each.startswith(prefix))

    def open(self, name: str) -> IO[bytes]:
        if name not in self.objects:
            raise FileNotFoundError(name)
        return BytesIO(self.objects[name])


@dataclass(frozen=True)
class Folder:
    """A copy of the archive in a folder, which commands read without a cloud by the words `named`."""

    root: Path

    @property
    def named(self) -> tuple[str, str]:
        return "--archive", str(self.root)

    def put(self, name: str, body: bytes) -> None:
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(body)

    def write(self, folder: str, lines: list[str], date: str, name: str = "one") -> str:
        file = f"{folder}/date={date}/hour=12/{name}.json.gz"
        self.put(file, packed(lines))
        return file


def queue_message(event: Envelope) -> dict[str, Any]:
    """A message with `event` that was sent after all decisions, as boto3 gives it."""
    attributes = {"SentTimestamp": str(DECIDED_MS + 1), "ApproximateReceiveCount": "6"}
    return {"MessageId": f"message-{event.id}", "Body": event.json, "Attributes": attributes}


def event(id: str, type: str = READING, **attributes: AttributeValue) -> Envelope:
    return write_event({"id": id, "source": "/homes/1/health", "type": type, **attributes}, {"value": 1})


HOME = Sender("home-1")
ROUTER = THE_PLANE


def letter(
    original: bytes,
    reason: str = "payload_invalid",
    channel: str = UPLINK,
    id: str = "letter-1",
    *,
    sender: Sender | None = HOME,
    written_by: Sender = ROUTER,
    route: str | None = None,
) -> Envelope:
    """A dead-letter event about what `sender` sent, as it arrives from who wrote it: the cloud's router."""
    unstamped = dead_letter(
        id=id,
        source="/eventplane/cloud/router",
        time="2026-01-01T00:00:00Z",
        refusal=Refusal(reason, "$.value is a string"),
        channel=channel,
        original=original,
        contract_version="0123456789abcdef",
        route=route,
        sender=sender,
    )
    return unstamped.stamped(**written_by.attributes)


def letter_of_event(refused: Envelope, sender: Sender = HOME) -> Envelope:
    """The router's letter of an event that `sender` sent."""
    return letter(refused.json.encode(), id=letter_id(str(sender), *refused.claim), sender=sender)


def device_letter(original: bytes, reason: str, channel: str, id: str) -> Envelope:
    """A dead-letter event as a forwarder sends it up: the cloud has not stamped it yet."""
    own = letter(original, reason, channel, id, written_by=Sender(service="device"))
    return parse_event(own.json.replace("/eventplane/cloud/router", "/devices/home-1/router"))


def as_json(body: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(body)
    return loaded


ACCEPTED_MS = 1_767_225_600_000
DECIDED_MS = ACCEPTED_MS + 500


def tap_line(text: str, index: int = 0, device: str = "home-1") -> str:
    """An event that IoT Core accepted from `device`."""
    return to_line(
        TapRecord(ACCEPTED_MS, DECIDED_MS, device, "topic", f"m-{device}", index, text, None, None)
    )


def tap_refusal_line(original: bytes, refusal: str, index: int = 0) -> str:
    """What IoT Core accepted and is no event."""
    encoded = base64.b64encode(original).decode()
    return to_line(TapRecord(ACCEPTED_MS, DECIDED_MS, "home-1", "topic", "m", index, None, encoded, refusal))


def ledger_line(
    decided: Envelope | None,
    outcome: Outcome,
    *,
    route: tuple[str, str] | None = None,
    reason: str | None = None,
    contract_version: str = load_contract().version,
    sender: Sender = HOME,
) -> str:
    """What a router decided on an event of `sender`, or (None) on what was none; `route` is its name and
    destination."""
    return to_line(
        LedgerRecord(
            decided_at_ms=DECIDED_MS,
            entered_at_ms=ACCEPTED_MS,
            entered_by=UPLINK,
            contract_version=contract_version,
            source=decided.source if decided else "",
            id=decided.id if decided else "",
            type=decided.type if decided else "",
            priority="normal",
            client_id="home-1",
            sender=str(sender),
            route=route[0] if route else None,
            destination=route[1] if route else None,
            outcome=outcome,
            reason=reason,
            attempt=1,
            message_id="m-1",
            dead_letter_reason=reason_in(decided) if decided else None,
        )
    )


MINUTE_MS = 60_000
ALARM = write_event(
    {
        "id": "17",
        "source": "/homes/1/voice",
        "type": "org.eventplane.alarm.keyword.v1",
        "time": "2026-01-01T00:00:00Z",
        "recordedtime": "2026-01-01T00:00:00Z",
        "devicesequence": "7",
        "deviceepoch": "e1",
        "senderservice": "voice-service",
    },
    {"keyword": "help </script> \\u003c"},
)
"""Of a service of `home-1`: it rings there, and goes to the cloud."""


def line(event: Envelope, after_ms: int = 0, device: str = "home-1") -> str:
    """What the tap has of an event that came some time after the alarm."""
    at_ms = ACCEPTED_MS + after_ms
    return to_line(
        TapRecord(at_ms, at_ms, device, "topic", f"m-{event.id}-{device}", 0, event.json, None, None)
    )


def report(
    type: str, data: dict[str, Any], after_ms: int, epoch: str = "e1", number: int = 0, **more: Any
) -> str:
    """A report of `home-1`, in the tap."""
    source = {"source": "/devices/home-1/forwarder", "type": type, "id": f"{type}-{after_ms}"}
    number = number or 9 + after_ms // MINUTE_MS
    written = write_event({**source, "deviceepoch": epoch, "devicesequence": str(number)}, data)
    return line(written, after_ms, **more)


def manifest(
    to: int, after_ms: int = MINUTE_MS, *pending: int, final: bool = False, at: int = 7, **more: Any
) -> str:
    """A manifest by which the alarm has ended up to a number, or is `pending`."""
    stated = {"destination": "call-service.inbox", "first": at, "last": at, "count": 1, "acknowledged_to": to}
    if pending:
        stated["pending"] = list(pending)
    up = {**stated, "destination": "device.outbox", "first": 7, "last": 8, "count": 2, "acknowledged_to": 8}
    up.pop("pending", None)
    data = {"epoch": "e1", "contract": load_contract().version, "statements": [stated, up]}
    data |= {"final": True} if final else {}
    return report(MANIFEST, data, after_ms, **more)


LATER = report(HEARTBEAT, {}, 5 * MINUTE_MS)
