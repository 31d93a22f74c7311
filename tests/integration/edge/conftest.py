"""One home with real parts: its Mosquitto, its forwarder, and a second Mosquitto that plays IoT Core."""

import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from contract.loader import load_contract
from edge.spool.recovery import read_backlog
from eventplane.batch import unpack
from eventplane.contract import Contract, Downlink
from eventplane.device_reports import ACKNOWLEDGED
from eventplane.downlink.device import Acknowledgement, from_data
from eventplane.downlink.wire import stamped
from eventplane.envelope import Envelope, write_event
from eventplane.topics import basic_ingest_topic, device_topic, urgent_rule
from eventplane_client import Client, connect
from eventplane_client.mqtt import MqttTransport
from lab.mosquitto import Broker, start_cloud_broker, start_mosquitto
from lab.network import free_port
from lab.process import Child, Supervisor
from lab.things import Authority
from tests.endpoint import EndpointServer, tunnel
from tests.eventually import eventually
from tests.integration.mqtt import TestClient

THING = "home-1"
RULE = "ingest"
READING = "org.eventplane.health.reading.v1"
SECONDS = 60.0
"""How long anything may take on a busy machine; nothing here is about speed."""


class RecordingCloud:
    """A broker in IoT Core's place, and a subscriber that counts what reached it.

    The subscriber has a lasting session, so it misses nothing that the broker acknowledged.
    """

    def __init__(self, supervisor: Supervisor, directory: Path, authority: Authority) -> None:
        self._broker = start_cloud_broker(supervisor, directory, authority)
        self.port, self.plain_port = self._broker.port, self._broker.plain_port
        self.payloads: list[bytes] = []
        self._events: list[Envelope] = []
        self._ids: set[str] = set()
        self._subscriber: TestClient | None = None
        self._open_subscriber()

    @property
    def events(self) -> list[Envelope]:
        """Every event that arrived, repetitions included."""
        self._collect()
        return list(self._events)

    def has(self, ids: set[str]) -> bool:
        """Whether events with all `ids` arrived."""
        self._collect()
        return ids <= self._ids

    def stop(self) -> None:
        """Stop in good order: what it acknowledged, it has saved."""
        self._close_subscriber()
        self._broker.child.stop()

    def start(self) -> None:
        self._broker.child.start()
        self._open_subscriber()

    def close(self) -> None:
        self._close_subscriber()

    def send_down(self, event: str) -> None:
        """Publish to the device's inbox; like IoT Core it keeps nothing for a device that is away."""
        assert self._subscriber.publish(device_topic(THING, "inbox"), event.encode())

    def send_until_answered(self, event: str, key: str, version: int) -> Acknowledgement:
        """Send down again and again, as the cloud does, until the device has answered."""

        def answered() -> bool:
            self.send_down(event)
            return eventually(lambda: bool(self.answers_to(key, version)), 1.0)

        wait_for(answered)
        return self.answers_to(key, version)[0]

    def answers_to(self, key: str, version: int) -> list[Acknowledgement]:
        return [each for each in self.answers() if (each.key, each.version) == (key, version)]

    def answers(self) -> list[Acknowledgement]:
        """What the device answered to what came down, repetitions included."""
        reports = (each for each in self.events if each.type == ACKNOWLEDGED)
        return [answer for each in reports for answer in from_data(each.data())[0]]

    def _open_subscriber(self) -> None:
        self._subscriber = TestClient("counter", "127.0.0.1", self.plain_port, persistent=True)
        self._subscriber.__enter__()
        for rule in (RULE, urgent_rule(RULE)):
            self._subscriber.subscribe(basic_ingest_topic(rule, THING))

    def _close_subscriber(self) -> None:
        if self._subscriber is not None:
            self._subscriber.__exit__(None, None, None)
            self._collect()
            self._subscriber = None

    def _collect(self) -> None:
        if self._subscriber is not None:
            messages = self._subscriber.messages
            while messages:
                _, payload = messages.pop(0)
                events = [each for each in unpack(payload) if isinstance(each, Envelope)]
                self.payloads.append(payload)
                self._events += events
                self._ids.update(each.id for each in events)


@dataclass
class Home:
    """A home; `forwarder` is its process, `spool` and `settings` its files, `health_port` its endpoint."""

    broker: Broker
    forwarder: Child
    spool: Path
    settings: Path
    health_port: int
    services: list[MqttTransport | Client] = field(default_factory=list)

    def transport(self, name: str, **options: object) -> MqttTransport:
        """What the client library sends over, which also takes raw bytes; closed with the test."""
        it = MqttTransport(name, port=self.broker.port, receipt_timeout_s=1, **options)  # type: ignore[arg-type]
        self.services.append(it)
        return it

    def connect(self, name: str, **settings: object) -> Client:
        """The client library's client for one of the contract's services; closed with the test."""
        client = connect(f"mqtt://127.0.0.1:{self.broker.port}", name, **settings)  # type: ignore[arg-type]
        self.services.append(client)
        return client

    def listen(
        self,
        name: str,
        handler: Callable[[Envelope], object],
        *,
        handles: list[object] | None = None,
        **settings: object,
    ) -> Client:
        """A client whose inbox `handler` handles in a thread of its own, at least once each event.

        It has subscribed already: what is sent to an inbox without receipts before that is lost.
        """
        client = self.connect(name, mode="at_least_once", **settings)
        wait_for(lambda: client._transport.up)  # type: ignore[attr-defined]
        if handles is not None:
            client.announce(handles)
        threading.Thread(target=client.subscribe().handle, args=(handler,), daemon=True).start()
        return client

    def drained(self) -> bool:
        """Whether no delivery is pending."""
        return not any(read_backlog(self.spool).values())

    def close(self) -> None:
        """End services and forwarder at once: a stop in good order would wait for what nobody confirms."""
        for service in self.services:
            service.close()
        self.forwarder.kill()

    def log(self) -> str:
        return self.forwarder.log.read_text()

    def logged(self, text: str) -> int:
        """How often the forwarder's log has `text`."""
        return self.log().count(text)

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of a page of the health endpoint; 0 when nobody listens yet."""
        answer = b""
        try:
            with socket.create_connection(("127.0.0.1", self.health_port), timeout=SECONDS) as line:
                line.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                while more := line.recv(65_536):
                    answer += more
        except ConnectionError:
            return 0, ""
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), body.decode()

    def health(self) -> dict[str, Any]:
        """The document of /healthz; empty when nobody listens yet."""
        status, body = self.get("/healthz")
        document: dict[str, Any] = json.loads(body) if body else {}
        assert (status == 503) == (document.get("status") == "failing")
        return document

    def problems(self) -> list[str]:
        return [each["name"] for each in self.health().get("problems", [{"name": "no endpoint yet"}])]

    def metric(self, name: str) -> float:
        """The value of a sample by its name and labels; -1 when it is not there."""
        for line in self.get("/metrics")[1].splitlines():
            if line.startswith(name + " "):
                return float(line.split(" ")[-1])
        return -1.0


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A home's broker for all tests of a module: use client ids and topics of your own."""
    folder = tmp_path_factory.mktemp("shared")
    with Supervisor(folder / "run") as supervisor:
        yield start_mosquitto(supervisor, "home", folder / "home")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "certificates")


@pytest.fixture
def cloud(supervisor: Supervisor, tmp_path: Path, authority: Authority) -> Iterator[RecordingCloud]:
    broker = RecordingCloud(supervisor, tmp_path / "cloud", authority)
    yield broker
    broker.close()


@pytest.fixture
def home_contract() -> Contract:
    """What the forwarder of `home` runs by: the shipped contract, unless a module has its own fixture."""
    return load_contract()


@pytest.fixture
def proxy(cloud: RecordingCloud, monkeypatch: pytest.MonkeyPatch) -> Iterator[EndpointServer]:
    """The only way to the cloud for programs that start from now on: they are given an unused port."""
    with EndpointServer(*[tunnel(cloud.port)] * 100) as server:
        monkeypatch.setenv("EVENTPLANE_CLOUD_PORT", "443")
        monkeypatch.setenv("EVENTPLANE_CLOUD_PROXY_HOST", "127.0.0.1")
        monkeypatch.setenv("EVENTPLANE_CLOUD_PROXY_PORT", str(server.port))
        yield server


MakeHome = Callable[..., Home]
"""`start_home` with the parts of a test: it wants the port of the cloud, and takes a `broker`."""


@pytest.fixture
def make_home(
    supervisor: Supervisor, mosquitto: Callable[[str], Broker], tmp_path: Path, authority: Authority
) -> Iterator[MakeHome]:
    """Start homes that end with the test."""
    with ExitStack() as ends:

        def make(cloud_port: int, *, broker: Broker | None = None, **options: Any) -> Home:
            home = start_home(
                supervisor, broker or mosquitto("home"), tmp_path, cloud_port, authority, **options
            )
            ends.callback(home.close)
            return home

        yield make


@pytest.fixture
def home(make_home: MakeHome, cloud: RecordingCloud, home_contract: Contract) -> Home:
    return make_home(cloud.port, contract=home_contract)


def start_home(
    supervisor: Supervisor,
    broker: Broker,
    directory: Path,
    cloud_port: int,
    authority: Authority,
    *,
    local: Mapping[str, object] | None = None,
    contract: Contract | None = None,
    program: tuple[str, str] = ("-m", "edge"),
) -> Home:
    """A home at `broker` whose forwarder runs; `local` is added to `[local]`.

    The `contract` is the shipped one unless given, and Python runs `program`.
    """
    (directory / "contract.json").write_bytes((contract or load_contract()).canonical)
    identity = authority.issue(THING)
    cloud = {
        "host": "127.0.0.1", "port": cloud_port, "rule": RULE, "ca": str(authority.ca),
        "certificate": str(identity.certificate), "key": str(identity.key),
        "reconnect_min_s": 0.1, "reconnect_max_s": 0.5, "batch_events": 20, "puback_timeout_s": 10,
        "longest_delay_ms": 250,
    }  # fmt: skip
    settings, health_port = directory / "edge.toml", free_port()
    settings.write_text(
        f'thing = "{THING}"\ncontract = "contract.json"\nspool = "state/spool.db"\n'
        f"[local]\nport = {broker.port}\nreceipt_timeout_s = 1\nreconnect_max_s = 0.2\n"
        + "".join(f"{name} = {json.dumps(value)}\n" for name, value in (local or {}).items())
        + "[cloud]\n"
        + "".join(f"{name} = {json.dumps(value)}\n" for name, value in cloud.items())
        + f"[health]\nport = {health_port}\n"
    )
    spool = directory / "state" / "spool.db"
    forwarder = supervisor.start(
        "forwarder", [sys.executable, *program, "--settings", str(settings)], ready=spool.exists
    )
    home = Home(broker, forwarder, spool, settings, health_port)
    # Before it has subscribed, the broker drops what services send: it would come again, but out of order.
    wait_for(lambda: "local broker connected" in home.log())
    return home


def down(
    event: str, sender: str, key: str, *, version: int = 1, order: int = 0, is_deleted: bool = False
) -> str:
    """The event as a cloud service sends it to a device: a command if it has an `order`, else a state."""
    members = {"senderservice": sender} | json.loads(event)
    return stamped(
        json.dumps(members),
        kind=Downlink.COMMAND if order else Downlink.STATE,
        key=key,
        uid="",
        version=version,
        is_deleted=is_deleted,
        order=order,
        fence=1,
    )


def event(number: int, type_: str = READING) -> Envelope:
    """The event `e<number>` of the health service."""
    return write_event({"id": f"e{number}", "source": "/homes/1/health", "type": type_}, {"value": number})


def ids(count: int) -> set[str]:
    """The ids of the first `count` events."""
    return {f"e{number}" for number in range(count)}


def send(service: Client, first: int, last: int, type_: str = READING) -> None:
    """Send the events from `first` to before `last`, without waiting for the forwarder."""
    for number in range(first, last):
        service.send(event(number, type_), timeout_s=SECONDS)


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until `condition()` holds; the test fails when it does not come to that."""
    assert eventually(condition, SECONDS)
