"""The deployed plane from outside: the events of these benchmarks, a device, readers, functions' logs."""

from __future__ import annotations

import json
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from time import monotonic_ns
from typing import Any, Final, Self

from eventplane.topics import basic_ingest_topic, urgent_rule
from eventplane_mqtt.connection import Connection
from eventplane_mqtt.endpoint import Endpoint, TlsFiles
from eventplane_mqtt.mailbox import Acknowledged, Connected, Disconnected, LinkName, Message
from lab.benchmarks.processes import scratch
from lab.cloud import CloudEndpoint, function_logs
from lab.consumers import InboxReaders
from lab.emulator import start_emulator
from lab.plane import Plane, deploy_plane
from lab.process import Supervisor

SIZE: Final = 512
"""Bytes of an event."""

DOOR: Final = "org.eventplane.activity.door.v1"
"""The contract routes it to two inboxes, as it does an alarm."""
ALARM: Final = "org.eventplane.alarm.keyword.v1"

DOOR_INBOXES: Final = ("care-analytics", "family-app")
ALARM_INBOXES: Final = ("alarm-centre", "family-app")

_DATA: Final = {DOOR: {"state": "opened"}, ALARM: {"keyword": "help", "room": "bath"}}

_UNACKNOWLEDGED: Final = 100
_PATIENCE_S: Final = 120.0

PREFIX: Final = "eventplane-local-"
_REPORT: Final = re.compile(r"REPORT .*?\tDuration: ([\d.]+) ms")


@dataclass(frozen=True, slots=True)
class Deployed:
    """The plane in a local cloud; other files and processes of a run are in `directory` and `supervisor`."""

    plane: Plane
    directory: Path
    supervisor: Supervisor

    @property
    def log(self) -> Path:
        """The log of the emulator."""
        return self.supervisor.run_dir / "emulator.log"


@contextmanager
def deployed_plane() -> Iterator[Deployed]:
    """Deploy the plane in a local cloud, which ends with the block."""
    with scratch() as (directory, supervisor):
        yield Deployed(deploy_plane(supervisor, start_emulator(supervisor)), directory, supervisor)


def event(id: str, type: str = DOOR) -> str:
    """The text of one event of `SIZE` bytes."""
    document = {
        "specversion": "1.0",
        "id": id,
        "source": "/homes/1/activity-service",
        "type": type,
        "subject": "/homes/1/rooms/hall",
        "time": "2026-01-01T00:00:00.000Z",
        "datacontenttype": "application/json",
        "data": {**_DATA[type], "note": ""},
    }
    missing = SIZE - len(_compact(document))
    # Half of it is noise: real readings shrink to a tenth to a fifth.
    noise = sha256(id.encode()).hexdigest()[: missing // 4]
    document["data"]["note"] = noise.ljust(missing, "-")  # type: ignore[index]
    return _compact(document)


def _compact(document: object) -> str:
    return json.dumps(document, separators=(",", ":"))


class BenchDevice:
    """Provisions the thing `name` on entering the `with` block, and connects with the device's own layer."""

    def __init__(self, plane: Plane, name: str, directory: Path) -> None:
        self._thing = plane.provision(name, directory / name)
        rule = plane.outputs["IngestRule"]
        self._topics = [basic_ingest_topic(each, name) for each in (rule, urgent_rule(rule))]
        self._tick = threading.Condition()
        self._up = False
        self._failure: str | None = None
        self._unacknowledged = 0

    def __enter__(self) -> Self:
        thing = self._thing
        endpoint = Endpoint(
            thing.host,
            thing.port,
            thing.name,
            clean_session=True,
            keepalive_s=60,
            connect_timeout_s=10,
            tls=TlsFiles(thing.ca, thing.certificate, thing.key),
        )
        self._connection = Connection(endpoint, LinkName.CLOUD, 1, self._emit)
        with self._tick:
            self._wait(lambda: self._up)
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close(_PATIENCE_S)

    def publish(self, payload: bytes, *, urgent: bool = False) -> None:
        """Publish into the ingest rule, or the urgent one; waits while too many are unacknowledged."""
        with self._tick:
            self._wait(lambda: self._unacknowledged < _UNACKNOWLEDGED)
            self._unacknowledged += 1
        self._connection.publish(self._topics[urgent], payload)

    def _wait(self, condition: Callable[[], bool]) -> None:
        done = self._tick.wait_for(lambda: condition() or self._failure, _PATIENCE_S)
        if self._failure or not done:
            raise SystemExit(f"the device's connection: {self._failure or 'no acknowledgement in time'}")

    def _emit(self, message: Message) -> None:
        with self._tick:
            match message:
                case Connected():
                    self._up = True
                case Acknowledged(failure=None):
                    self._unacknowledged -= 1
                case Acknowledged(failure=reason) | Disconnected(reason=reason):
                    self._failure = reason
            self._tick.notify_all()


class Readers(InboxReaders):
    """Reads `inboxes` of `plane` while in its `with` block.

    `came` has, by inbox, when each event's id was first received (`time.monotonic_ns`). `client` makes an SQS
    client; another one may count what it is asked.
    """

    def __init__(self, plane: Plane, inboxes: Iterable[str], client: Callable[[], Any] | None = None) -> None:
        self.came: dict[str, dict[str, int]] = {inbox: {} for inbox in inboxes}
        urls = {inbox: plane.inboxes[inbox] for inbox in self.came}
        super().__init__(urls, client or (lambda: plane.cloud.client("sqs")))

    def wait_for(self, number: int) -> int:
        """Wait until every inbox has received `number` events; when the last came.

        It gives up when nothing has come for two minutes.
        """
        with self._tick:
            least = -1
            while (now := self._least()) < number:
                if now == least:
                    raise SystemExit(f"{number - now} of {number} events did not arrive; see the run's logs")
                least = now
                self._tick.wait_for(lambda: self._least() > least, _PATIENCE_S)  # noqa: B023 - asked at once
            return max(max(each.values(), default=0) for each in self.came.values())

    def delays(self, inbox: str, sent: Mapping[str, int]) -> list[int]:
        """Nanoseconds from the time `sent` of each id until it came to `inbox`; waits until all have."""
        came = self.came[inbox]
        with self._tick:
            self._tick.wait_for(lambda: sent.keys() <= came.keys(), _PATIENCE_S)
            if missing := sent.keys() - came.keys():
                raise SystemExit(f"{len(missing)} events did not arrive in {inbox}; see the run's logs")
            return [came[id] - time for id, time in sent.items()]

    def _least(self) -> int:
        return min(len(each) for each in self.came.values())

    def _take(self, service: str, texts: Sequence[str]) -> None:
        now = monotonic_ns()
        for text in texts:
            self.came[service].setdefault(json.loads(text)["id"], now)


@dataclass(frozen=True, slots=True)
class Invocations:
    """The number of one function's invocations, and their milliseconds in all."""

    number: int
    total_ms: float

    def since(self, earlier: Invocations) -> Invocations:
        """Without the `earlier` ones."""
        return Invocations(self.number - earlier.number, self.total_ms - earlier.total_ms)


def invocations(cloud: CloudEndpoint) -> defaultdict[str, Invocations]:
    """All so far, by function without the environment's prefix; none of one that never ran."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for name, event in function_logs(cloud, PREFIX, "REPORT"):
        if line := _REPORT.search(event["message"]):
            found[name.removeprefix(PREFIX)].append(float(line[1]))
    counts = {name: Invocations(len(times), sum(times)) for name, times in found.items()}
    return defaultdict(lambda: Invocations(0, 0.0), counts)
