"""`python -m lab.chaos.worker FOLDER PORT RULE`: the functions behind one ingest rule of the stand-in.

A persistent session at the broker takes the place of the rule's queue. Each publish goes to the functions'
own code, over files in FOLDER: first the archive writer, then the router. It is acknowledged after both, so
what a killed worker had not finished is redelivered. On SIGTERM it drains what is queued, and ends.
"""

import hashlib
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from io import BytesIO
from os import urandom
from pathlib import Path
from queue import Empty, Queue
from typing import Any, Final
from uuid import uuid4

import paho.mqtt.client as mqtt
from botocore.exceptions import ClientError
from paho.mqtt.enums import CallbackAPIVersion

from eventplane.contract import ContractError, load_compiled
from eventplane.contract.publication import cloud_destinations
from eventplane.ingest import IngestFrame, frame_text
from eventplane.sqs_binding import split
from lab.chaos.consumer import ArrivalWriter
from lab.network import LOOPBACK
from lambdas.archive.ledger import LedgerWriter
from lambdas.archive.tap import TapWriter
from lambdas.common import system
from lambdas.common.archive import Archiver
from lambdas.common.ledger import Ledger
from lambdas.common.queue import Invocation, QueueMessage
from lambdas.common.sender import TAKEN, Acceptance, Answer, OutgoingMessage
from lambdas.common.sqs import SqsSender
from lambdas.common.system import system_clock
from lambdas.router.dispatch import Dispatch
from lambdas.router.engine import RoutingEngine, build_engine
from lambdas.router.service import RouterService

CONTRACT: Final = "contract.json"
ARCHIVE: Final = "archive"
ARRIVALS: Final = "arrivals"
READY: Final = "subscribed to the ingest rule"
"""What it logs at each start."""

_SOURCE: Final = "device.outbox"
_BATCH: Final = 10
"""Most publishes of one invocation, as the router's event source has it."""

_QUIET_S: Final = 1.0
_INVOCATION_MS: Final = 30_000


class FileS3:
    """Every bucket is a folder of `root`. An object is there whole or not at all."""

    def __init__(self, root: Path) -> None:
        self._root = root

    # boto3's names.
    def put_object(self, *, Bucket: str, Key: str, Body: bytes, IfNoneMatch: str = "", **_: Any) -> Any:  # noqa: N803
        """Write one object; one that is there is replaced, if that is not forbidden."""
        path = self._root / Bucket / Key
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")  # each worker writes contracts
        unfinished.write_bytes(Body)
        if not IfNoneMatch:
            unfinished.replace(path)
            return _described(Body)
        try:
            path.hardlink_to(unfinished)
        except FileExistsError:
            raise ClientError({"Error": {"Code": "PreconditionFailed"}}, "PutObject") from None
        finally:
            unfinished.unlink()
        return _described(Body)

    def get_object(self, *, Bucket: str, Key: str) -> Any:  # noqa: N803 - boto3's names
        body = (self._root / Bucket / Key).read_bytes()
        return {"Body": BytesIO(body), **_described(body)}


def _described(body: bytes) -> dict[str, str]:
    return {"ETag": hashlib.md5(body, usedforsecurity=False).hexdigest()}


class FileSqs:
    """Every queue is the file of a service's arrivals, which its URL names."""

    def __init__(self, queues: Mapping[str, Path]) -> None:
        self._writers = {url: ArrivalWriter(path) for url, path in queues.items()}

    def send_message_batch(
        self,
        *,
        QueueUrl: str,  # noqa: N803 - boto3's names
        Entries: Sequence[Mapping[str, Any]],  # noqa: N803
    ) -> dict[str, Any]:
        """Note all entries as arrived."""
        self._writers[QueueUrl].write(text for entry in Entries for text in split(entry["MessageBody"]))
        return {"Successful": [{"Id": entry["Id"]} for entry in Entries]}


class ContractFile:
    """The engine of the contract at `path`, whenever that changes; a broken one changes nothing."""

    def __init__(self, path: Path, inboxes: Sequence[str]) -> None:
        self._path = path
        self._inboxes = inboxes
        self._seen = b""
        self._engine: RoutingEngine | None = None

    def engine(self) -> RoutingEngine:
        """The engine for the next messages. Raises `ContractError` when there never was a usable contract."""
        text = self._path.read_bytes()
        if text != self._seen:
            self._seen = text
            try:
                self._engine = build_engine(
                    load_compiled(text, str(self._path)), [_SOURCE], self._inboxes, cpu_time=system.cpu_time
                )
            except ContractError:
                if self._engine is None:
                    raise
        assert self._engine is not None  # noqa: S101 - the first text is always new
        return self._engine


class LedgerQueue:
    """The ledger's queue, which its writer empties into `archive` at once."""

    def __init__(self, archive: Archiver) -> None:
        self._writer = LedgerWriter(archive=archive, clock=system_clock)

    def send(self, url: str, batch: Sequence[OutgoingMessage]) -> list[Answer]:  # noqa: ARG002
        messages = [QueueMessage(uuid4().hex, each.body, system_clock(), 1) for each in batch]
        failed = self._writer.process(messages, _invocation())
        again = Answer(Acceptance.AGAIN, "not written")
        return [again if each.id in failed else TAKEN for each in messages]


def arrivals_file(arrivals: Path, rule: str, service: str) -> Path:
    """Return the file of what the worker of `rule` delivers to `service`, in the folder `arrivals`."""
    return arrivals / rule / f"{service}.jsonl"


class WorkerFunctions:
    """The archive writer and the router behind `rule`, over the files of `folder`."""

    def __init__(self, folder: Path, rule: str) -> None:
        contract = load_compiled((folder / CONTRACT).read_bytes(), CONTRACT)
        inboxes = cloud_destinations(contract)
        arrivals = folder / ARRIVALS
        (arrivals / rule).mkdir(exist_ok=True)
        queues = {each.address: arrivals_file(arrivals, rule, each.participant) for each in inboxes}
        archive = Archiver(FileS3(folder), ARCHIVE, urandom)
        self._writer = TapWriter(archive=archive, clock=system_clock)
        self._router = RouterService(
            engine=ContractFile(folder / CONTRACT, list(queues)).engine,
            dispatch=Dispatch(SqsSender(FileSqs(queues)), {name: name for name in queues}, system.threads),
            ledger=Ledger(sender=LedgerQueue(archive), queue_url="", archive=archive),
            clock=system_clock,
        )

    def handle(self, messages: Sequence[QueueMessage]) -> None:
        """Archive and route messages; if one fails the process ends, and all are redelivered to the next."""
        invocation = _invocation()
        failed = self._writer.process(messages, invocation) | self._router.process(messages, invocation)
        if failed:
            sys.exit(f"{len(failed)} messages failed; see above")


def _invocation() -> Invocation:
    return Invocation(uuid4().hex, lambda: _INVOCATION_MS)


def queue_message(topic: str, payload: bytes) -> QueueMessage:
    """Return the queue message that the ingest rule makes of a publish; a redelivered one has the same id."""
    frame = IngestFrame(payload, topic, topic.split("/")[-2], "", system_clock())
    id = hashlib.sha256(topic.encode() + b"\n" + payload).hexdigest()[:32]
    return QueueMessage(id, frame_text(frame), frame.accepted_at_ms, 1)


def main() -> None:
    """Serve until SIGTERM, and drain."""
    folder, port, rule = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    functions = WorkerFunctions(folder, rule)
    arrived: Queue[mqtt.MQTTMessage] = Queue()
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    client = mqtt.Client(
        CallbackAPIVersion.VERSION2, client_id=f"cloud-{rule}", clean_session=False, manual_ack=True
    )
    client.on_message = lambda _client, _data, message: arrived.put(message)
    client.on_subscribe = _say_ready
    client.connect(LOOPBACK, port)
    client.loop_start()
    client.subscribe(f"$aws/rules/{rule}/#", 1)
    quiet_since: float | None = None
    while quiet_since is None or time.monotonic() - quiet_since <= _QUIET_S:
        if batch := _batch(arrived):
            functions.handle([queue_message(each.topic, bytes(each.payload)) for each in batch])
            for message in batch:
                client.ack(message.mid, message.qos)
            quiet_since = None
        elif stopping.is_set() and quiet_since is None:
            # From now on: one that was halted has not read yet what came meanwhile.
            quiet_since = time.monotonic()
    client.disconnect()
    client.loop_stop()


def _say_ready(*_: object) -> None:
    sys.stderr.write(f"{READY}\n")


def _batch(arrived: Queue[mqtt.MQTTMessage]) -> list[mqtt.MQTTMessage]:
    """Return what waits, at most `_BATCH`."""
    batch: list[mqtt.MQTTMessage] = []
    try:
        batch.append(arrived.get(timeout=0.1))
        while len(batch) < _BATCH:
            batch.append(arrived.get_nowait())
    except Empty:
        pass
    return batch


if __name__ == "__main__":
    main()
