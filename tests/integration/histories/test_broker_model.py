"""The simulator's broker does what Mosquitto does: the same scenarios over both."""

import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from getpass import getuser
from random import Random
from typing import Final, Protocol

import pytest

from lab.histories.engine import Engine
from lab.mosquitto import start_configured, start_mosquitto
from lab.network import LOOPBACK, free_port
from lab.process import Supervisor
from parts.simulate.broker import BrokerModel, Limits, ModelLink
from parts.simulate.home import home_limits

MAX_IN_FLIGHT: Final = 4
MAX_QUEUED: Final = 6
"""Small enough that scenarios reach them."""

DENIED: Final = "secret"
"""The second level of topics that no client may publish to or read."""

SETTINGS: Final = f"""
allow_anonymous true
max_inflight_messages {MAX_IN_FLIGHT}
max_queued_messages {MAX_QUEUED}
sys_interval 0
set_tcp_nodelay true
"""
ACCESS: Final = f"topic readwrite #\ntopic deny +/{DENIED}\n"

_TOPICS: Final = ("t", "t/1", "t/2", "t/x/1", "u", DENIED)
_FILTERS: Final = (*_TOPICS, "#", "+", "t/+", "t/#", "+/1", "t/x/#", "t/+/1")
_PINGREQ: Final = b"\xc0\x00"
_PINGRESP: Final = b"\xd0\x00"
_SECONDS: Final = 20.0

Step = tuple[str, ...]


def draw(seed: int, steps: int = 14) -> list[Step]:
    """Return the steps of a scenario: what, the client's name, and more."""
    random = Random(seed)
    found: list[Step] = [("connect", "a", "lasting", ""), ("connect", "b", "clean", "")]
    found.append(("subscribe", "a", random.choice(("#", "t/#", "+")), "1"))
    for number in range(steps):
        client = random.choice("aab")
        match random.choice(
            ("connect", "subscribe", "subscribe", "publish", "publish", "burst", "end", "acks")
        ):
            case "connect":
                will = random.choice(("", "", random.choice(_TOPICS)))
                found.append(("connect", client, random.choice(("clean", "lasting", "lasting")), will))
            case "subscribe":
                what = random.choice(("subscribe", "subscribe", "subscribe", "unsubscribe"))
                found.append((what, client, random.choice(_FILTERS), random.choice("011")))
            case "publish" | "burst" as what:
                kind = random.choice(("", "", "", "retain", "forget"))
                times = "1" if what == "publish" else str(MAX_IN_FLIGHT + random.randrange(MAX_QUEUED + 3))
                found.append(
                    (
                        "publish",
                        client,
                        random.choice(_TOPICS),
                        random.choice("011"),
                        kind,
                        f"p{number}",
                        times,
                    )
                )
            case "end":
                found.append((random.choice(("disconnect", "drop")), client))
            case _:
                found.append((random.choice(("hold", "acknowledge")), client))
    return found


class Wire(Protocol):
    """One connection to a broker."""

    def send(self, data: bytes) -> None:
        """Write bytes, if the connection is open."""

    def packet(self) -> bytes:
        """Return the next packet; b"" once the broker has ended the connection."""

    def drop(self) -> None:
        """End it without a word."""


class SocketWire:
    """A connection to the broker at a port."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), _SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = b""

    def send(self, data: bytes) -> None:
        with suppress(OSError):  # whoever reads sees the end
            self._socket.sendall(data)

    def packet(self) -> bytes:
        while not (found := _first(self._data)):
            try:
                more = self._socket.recv(65_536)
            except ConnectionError:
                more = b""
            if not more:
                self.drop()
                return b""
            self._data += more
        self._data = self._data[len(found) :]
        return found

    def drop(self) -> None:
        self._socket.close()


class ModelWire:
    """A connection to the model, whose time passes until nothing happens any more."""

    def __init__(self, engine: Engine, broker: BrokerModel) -> None:
        self._engine = engine
        self._data = b""
        self._is_over = False
        link = broker.open(self)
        assert link is not None
        self._link: ModelLink = link

    def take(self, data: bytes) -> None:
        self._data += data

    def hung_up(self) -> None:
        self._is_over = True

    def send(self, data: bytes) -> None:
        self._link.take(data)

    def packet(self) -> bytes:
        if not self._data and not self._is_over:
            self._engine.run(self._engine.now_s + _SECONDS)
        found = _first(self._data)
        assert found or self._is_over, "the model neither answers nor ends the connection"
        self._data = self._data[len(found) :]
        return found

    def drop(self) -> None:
        self._link.lost()


class _Client:
    def __init__(self, wire: Wire, prefix: str) -> None:
        self.wire = wire
        self.acknowledges = True
        self.is_over = False
        self._prefix = prefix
        self._owed: list[bytes] = []

    def settle(self) -> list[str]:
        """Return what came, once the broker has nothing more for this client."""
        replies: list[str] = []
        messages: list[str] = []
        retained: list[str] = []
        while not self.is_over:
            owed = len(self._owed)
            self.wire.send(_PINGREQ)
            while (packet := self.wire.packet()) not in (_PINGRESP, b""):
                kind, body = packet[0] >> 4, packet[1 + _digits(packet) :]
                if kind != 3:
                    # Not its id: the client knows what it asked.
                    replies.append(f"{kind}:{(body if kind == 2 else body[2:]).hex()}")
                    continue
                text = self._message(packet[0], body)
                (retained if packet[0] & 1 else messages).append(text)
            self.is_over = not packet
            if self.acknowledges:
                self.acknowledge()
            if len(self._owed) == owed and not self._acknowledged:
                break
        # A broker keeps what is retained in an order of its own.
        return [*sorted(replies), *sorted(retained), *messages, *(["ended"] if self.is_over else [])]

    def acknowledge(self) -> None:
        self._acknowledged = bool(self._owed)
        for mid in self._owed:
            self.wire.send(b"\x40\x02" + mid)
        self._owed.clear()

    def _message(self, first: int, body: bytes) -> str:
        size, qos = int.from_bytes(body[:2], "big"), first >> 1 & 3
        topic, rest = body[2 : 2 + size].decode().removeprefix(self._prefix), body[2 + size :]
        if qos:
            self._owed.append(rest[:2])
            rest = rest[2:]
        flags = f"{' dup' if first & 8 else ''}{' retained' if first & 1 else ''}"
        return f"{topic}={rest.decode()} qos {qos}{flags}"


class Scenario:
    """Runs the steps of a seed over connections that `connect` opens. `observed` is what happened."""

    def __init__(self, seed: int, connect: Callable[[], Wire]) -> None:
        self.observed: list[str] = []
        self._prefix = f"{seed}/"
        self._connect = connect
        self._clients: dict[str, _Client] = {}
        for step in draw(seed):
            what, name, *more = step
            if what == "connect":
                self._start(name, *more)
            elif (client := self._clients.get(name)) is not None and not client.is_over:
                getattr(self, f"_{what}")(client, *more)
            self.observed.append(" ".join(step))
            self._settle(name)
            if what == "drop":
                self._settle(name)  # the first answer may be before the end of the connection
        for name in self._clients:
            self._start(name, "clean", "")
            self._drop(self._clients[name])

    def _settle(self, actor: str) -> None:
        """Take down what each client observes of a step, the `actor` first: then the broker has done it."""
        for name, client in sorted(self._clients.items(), key=lambda each: each[0] != actor):
            if not client.is_over:
                self.observed += [f"  {name}: {each}" for each in client.settle()]

    def _start(self, name: str, kind: str, will: str) -> None:
        flags, payload = 2 if kind == "clean" else 0, _text(self._prefix + name)
        if will:
            flags, payload = flags | 0x0C, payload + _text(self._prefix + will) + _text(f"will of {name}")
        old, new = self._clients.get(name), _Client(self._connect(), self._prefix)
        new.wire.send(_packet(0x10, _text("MQTT") + bytes((4, flags, 0, 0)) + payload))
        self._clients[name] = new
        self.observed += [f"  new {name}: {each}" for each in new.settle()]
        if old is not None and not old.is_over:
            self.observed += [f"  old {name}: {each}" for each in old.settle()]

    def _subscribe(self, client: _Client, filter: str, qos: str) -> None:
        client.wire.send(_packet(0x82, b"\x00\x01" + _text(self._prefix + filter) + bytes((int(qos),))))

    def _unsubscribe(self, client: _Client, filter: str, _: str) -> None:
        client.wire.send(_packet(0xA2, b"\x00\x01" + _text(self._prefix + filter)))

    def _publish(self, client: _Client, topic: str, qos: str, kind: str, payload: str, times: str) -> None:
        for number in range(int(times)):
            text = "" if kind == "forget" else f"{payload}.{number}"
            mid = (number + 1).to_bytes(2, "big") if qos == "1" else b""
            first = 0x30 | int(qos) << 1 | bool(kind)
            client.wire.send(_packet(first, _text(self._prefix + topic) + mid + text.encode()))

    def _hold(self, client: _Client) -> None:
        client.acknowledges = False

    def _acknowledge(self, client: _Client) -> None:
        client.acknowledges = True

    def _disconnect(self, client: _Client) -> None:
        client.wire.send(b"\xe0\x00")

    def _drop(self, client: _Client) -> None:
        client.wire.drop()
        client.is_over = True


def _text(value: str) -> bytes:
    return len(value).to_bytes(2, "big") + value.encode()


def _packet(first: int, body: bytes) -> bytes:
    assert len(body) < 128
    return bytes((first, len(body))) + body


def _digits(data: bytes) -> int:
    """Return how many bytes the length of a packet takes, 0 while it is not there."""
    return next((at for at, each in enumerate(data[1:5], 1) if not each & 0x80), 0)


def _first(data: bytes) -> bytes:
    """Return the first whole packet of `data`, b"" without one."""
    digits = _digits(data)
    size = sum((each & 0x7F) << 7 * at for at, each in enumerate(data[1 : 1 + digits]))
    whole = 1 + digits + size
    return data[:whole] if digits and len(data) >= whole else b""


def expires(connect: Callable[[], Wire]) -> list[str]:
    """Return what a watcher observes of a client that says nothing for longer than its keepalive, 1 s."""
    watcher, silent = _Client(connect(), "keepalive/"), connect()
    watcher.wire.send(_packet(0x10, _text("MQTT") + bytes((4, 2, 0, 0)) + _text("keepalive/watcher")))
    watcher.wire.send(_packet(0x82, b"\x00\x01" + _text("keepalive/will") + b"\x01"))
    observed = watcher.settle()
    will = _text("keepalive/will") + _text("gone")
    silent.send(_packet(0x10, _text("MQTT") + bytes((4, 0x0E, 0, 1)) + _text("keepalive/silent") + will))
    while silent.packet():
        pass  # its CONNACK, and then its end
    observed += watcher.settle()
    watcher.wire.drop()
    return observed


def _published(packet: bytes, topic: bytes) -> list[str]:
    """Return the flags of a PUBLISH, and what is behind its topic and id."""
    return [f"{packet[0]:x} {packet[4 + len(topic) :]!r}"] if packet[0] >> 4 == 3 else []


def owners(connect: Callable[[], Wire]) -> list[str]:
    """Return what a lasting reader is given whose subscriptions in MQTT 5 have an owner, then another."""
    topic, observed = _text("owners/t"), list[str]()
    writer = _Client(connect(), "owners/")
    writer.wire.send(_packet(0x10, _text("MQTT") + bytes((4, 2, 0, 0)) + _text("owners/writer")))
    never_expires = b"\x05\x11\xff\xff\xff\xff"
    for owner in (7, 8):
        reader = connect()
        reader.send(
            _packet(0x10, _text("MQTT") + bytes((5, 0, 0, 0)) + never_expires + _text("owners/reader"))
        )
        reader.send(_packet(0x82, bytes((0, 1, 2, 0x0B, owner)) + topic + b"\x01") + _PINGREQ)
        while (packet := reader.packet()) != _PINGRESP:
            observed += _published(packet, topic)
        writer.wire.send(_packet(0x32, topic + b"\x00\x01here"))
        observed += _published(reader.packet(), topic)
        reader.drop()
        writer.settle()  # the broker knows of it
        writer.wire.send(_packet(0x32, topic + b"\x00\x01away"))
        writer.settle()
    writer.wire.drop()
    return observed


SCENARIOS = 60
"""Of each broker."""


@dataclass(frozen=True)
class Pair:
    """A real broker's port, and what makes a model of it."""

    port: int
    model: Callable[[Engine], BrokerModel]


def limited(engine: Engine) -> BrokerModel:
    limits = Limits(MAX_IN_FLIGHT, MAX_QUEUED)
    return BrokerModel(engine, limits, denies=lambda topic: topic.split("/")[1] == DENIED)


def of_a_home(engine: Engine) -> BrokerModel:
    return BrokerModel(engine, home_limits())


@pytest.fixture(scope="module", params=["limited", "home"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """One Mosquitto for all scenarios: with small limits, or with the device's profile."""
    folder = tmp_path_factory.mktemp("mosquitto")
    with Supervisor(folder / "run") as supervisor:
        if request.param == "home":
            yield Pair(start_mosquitto(supervisor, "home", folder).port, of_a_home)
            return
        port, access = free_port(), folder / "access"
        access.touch(0o600)
        access.write_text(ACCESS)
        text = f"user {getuser()}\nlistener {port} {LOOPBACK}\nacl_file {access}\n{SETTINGS}"
        start_configured(supervisor, "limited", folder, text, port)
        yield Pair(port, limited)


@pytest.mark.parametrize("seed", range(SCENARIOS))
def test_clients_observe_the_same(pair: Pair, seed: int) -> None:
    engine = Engine()
    broker = pair.model(engine)
    simulated = Scenario(seed, lambda: ModelWire(engine, broker)).observed
    assert simulated == Scenario(seed, lambda: SocketWire(pair.port)).observed


def test_a_client_that_says_nothing_is_presumed_dead(pair: Pair) -> None:
    engine = Engine()
    broker = pair.model(engine)
    simulated = expires(lambda: ModelWire(engine, broker))
    assert simulated == expires(lambda: SocketWire(pair.port))
    assert "will" in simulated[-1]


def test_a_message_is_kept_with_the_owner_it_waits_for(pair: Pair) -> None:
    engine = Engine()
    broker = pair.model(engine)
    found = owners(lambda: SocketWire(pair.port))
    assert found == owners(lambda: ModelWire(engine, broker))
    assert found == [
        r"32 b'\x02\x0b\x07here'",
        r"3a b'\x02\x0b\x07here'",
        r"32 b'\x02\x0b\x07away'",
        r"32 b'\x02\x0b\x08here'",
    ]
