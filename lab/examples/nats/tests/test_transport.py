"""Test what only NATS has: redelivery, restarts, copies, limits, rights, the operator's commands."""

import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import nats
import pytest
from botocore.config import Config
from botocore.exceptions import ConnectTimeoutError
from nats.aio.msg import Msg

from contract import load_contract
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.envelope import Envelope, write_event
from eventplane.limits import MAX_SENT_EVENT_BYTES
from eventplane.sqs_binding import to_message
from eventplane_client import ClientSettings, Mode, connect
from eventplane_client.errors import (
    ClientSettingsError,
    ClosedError,
    NotConfirmedError,
    RefusedError,
    UnavailableError,
)
from eventplane_client.inbox import Inbox
from eventplane_client.ports import Message, digest
from eventplane_client.sqlite_duplicates import SqliteFilter
from eventplane_nats.__main__ import main
from eventplane_nats.connection import CREDENTIALS, SECRET, NatsLink
from eventplane_nats.rights import password_variable
from eventplane_nats.sender import PAUSE_S, NatsSender
from eventplane_nats.streams import Fill, level, make_stream
from eventplane_nats.transport import NatsTransport
from lab.examples.nats.tests.server import NatsServer, start_nats
from lab.process import Supervisor
from lambdas.common.sender import TAKEN, Acceptance
from tests.eventually import eventually
from tests.small_contract import small_contract
from tests.unit.client.worlds import event

SECONDS = 20.0
LIMIT = 5

_numbers = itertools.count(1)


@dataclass
class Desk:
    """The streams of a participant `desk` whose outbox is its inbox."""

    server: NatsServer
    operator: NatsLink
    environment: str

    @property
    def stream(self) -> str:
        return f"eventplane-{self.environment}-desk-inbox"

    @property
    def address(self) -> str:
        return f"{self.server.url}/{self.environment}"

    def make(self, ack_wait_s: float = 3_600.0) -> None:
        inbox = load_contract().channel("alarm-centre.inbox")
        channel = replace(inbox, participant="desk", transport="nats")
        made = make_stream(
            self.operator.jetstream, self.environment, channel, ack_wait_s=ack_wait_s, max_deliver=LIMIT
        )
        assert self.operator.run(made, SECONDS) == self.stream

    def open(self) -> NatsTransport:
        return NatsTransport.find("desk", self.server.url, inbox=self.stream, outbox=self.stream)

    def level(self) -> Fill:
        return self.operator.run(level(self.operator.jetstream, self.stream), SECONDS)


@pytest.fixture
def channel(nats_server: NatsServer, operator: NatsLink) -> Desk:
    return Desk(nats_server, operator, f"own{next(_numbers)}")


@pytest.fixture
def transport(channel: Desk) -> Iterator[NatsTransport]:
    channel.make()
    it = channel.open()
    yield it
    it.close()


def ids(messages: Sequence[Message]) -> list[str]:
    return [json.loads(each.body)["id"] for each in messages]


def test_what_was_in_flight_is_redelivered(channel: Desk) -> None:
    channel.make(ack_wait_s=0.5)
    reader = channel.open()
    reader.put(event("held"), SECONDS, durable=True)
    assert ids(reader.receive(1, SECONDS)) == ["held"]
    reader.close()
    reader.close()
    for call in (lambda: reader.put(event(), 1, durable=True), lambda: reader.receive(1, 0)):
        with pytest.raises(ClosedError):
            call()
    assert channel.level() == Fill(1, 1, 0)
    transport = channel.open()
    (again,) = transport.receive(1, SECONDS)
    assert (ids([again]), again.attempt) == (["held"], 2)
    transport.close()


def test_a_killed_server_keeps_confirmed(channel: Desk, transport: NatsTransport) -> None:
    transport.put(event("before"), SECONDS, durable=True)
    channel.server.child.kill()
    with pytest.raises(NotConfirmedError):
        transport.put(event("meanwhile"), 0.2, durable=True)
    transport.put(event("lost"), 0.2, durable=False)  # nobody is told
    channel.server.child.start()

    def is_put() -> bool:
        try:
            transport.put(event("after"), 1.0, durable=True)
        except (NotConfirmedError, UnavailableError):
            return False
        return True

    assert eventually(is_put, SECONDS)
    found: list[str] = []
    while "after" not in found:
        messages = transport.receive(10, SECONDS)
        found += ids(messages)
        assert transport.acknowledge(messages) == []
    assert found[0] == "before"


def test_the_stream_drops_a_copy(channel: Desk, transport: NatsTransport) -> None:
    for each in (event("one"), event("one"), event("one").stamped(senderservice="other")):
        transport.put(each, SECONDS, durable=True)
    assert channel.level().messages == 2


def test_two_readers_share_an_inbox(channel: Desk, transport: NatsTransport) -> None:
    sent = [event() for _ in range(20)]
    for each in sent:
        transport.put(each, SECONDS, durable=True)
    other = channel.open()
    found = ids([*transport.receive(12, SECONDS), *other.receive(12, SECONDS)])
    assert sorted(found) == sorted(each.id for each in sent)
    assert transport.receive(1, 0) == other.receive(1, 0) == []
    other.close()


def test_long_work_does_not_come_again(channel: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    channel.make(ack_wait_s=3.0)
    extended: list[int] = []
    extend = NatsTransport.extend

    def count(self: NatsTransport, messages: Sequence[Message]) -> None:
        extend(self, messages)
        extended.append(len(messages))

    monkeypatch.setattr(NatsTransport, "extend", count)
    settings = ClientSettings(channel.address, "desk", mode=Mode.AT_LEAST_ONCE)
    first = channel.open()
    first.put(event(), SECONDS, durable=True)
    with connect(settings) as client, client.subscribe() as inbox:
        received = inbox.receive(SECONDS)
        assert eventually(lambda: len(extended) > 3, 60)  # a second lies between two of them
        assert first.receive(1, 0) == []
        received.ack()
    assert channel.level() == Fill(0, 0, 0)
    first.close()


def test_what_is_given_up_stays_is_shown_and_comes_again_by_the_command(
    channel: Desk, transport: NatsTransport, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    transport.put(event("poison"), SECONDS, durable=True)
    for attempt in range(1, LIMIT + 1):
        (message,) = transport.receive(1, SECONDS)
        assert message.attempt == attempt
        transport.release(message, 0)
    assert transport.max_receives == LIMIT - 1
    assert transport.receive(1, 0) == []
    assert channel.level() == Fill(1, 0, 1)

    file = tmp_path / "contract.json"
    file.write_bytes(contract_of("desk"))
    assert main(["create", channel.address, str(file)]) == 0  # the outbox; the inbox stays as full as it is
    capsys.readouterr()
    assert main(["status", channel.address, str(file)]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == f"{channel.stream}: 1 messages, 0 in flight, 1 given up"
    assert main(["redrive", channel.address, "desk.inbox"]) == 0
    (again,) = transport.receive(1, SECONDS)
    assert (ids([again]), again.attempt) == (["poison"], 1)


def test_a_crash_needs_the_command(channel: Desk, transport: NatsTransport, tmp_path: Path) -> None:
    before, later = event("before"), event("later")
    crashed = SqliteFilter(tmp_path / "state")
    crashed.claim([digest(before), digest(later)])
    crashed.close()
    transport.put(before, SECONDS, durable=True)
    assert main(["redrive", channel.address, "desk.inbox"]) == 0
    transport.put(later, SECONDS, durable=True)
    state = SqliteFilter(tmp_path / "state")
    with closing(state), closing(channel.open()) as again, Inbox("desk", again, state) as inbox:
        assert [inbox.get(SECONDS).id, inbox.get(SECONDS).type] == ["before", DEAD_LETTER_TYPE]


def test_the_command_creates(channel: Desk, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "contract.json"
    for retention_s in (3_600, 7_200):
        file.write_bytes(contract_of("desk", retention_s=retention_s))
        assert main(["create", channel.address, str(file), "--ack-wait-s", "7"]) == 0
        assert capsys.readouterr().out.splitlines()[0] == channel.stream
        info = channel.operator.run(channel.operator.jetstream.stream_info(channel.stream), SECONDS)
        assert info.config.max_age == retention_s
    transport = channel.open()
    assert (transport.visibility_s, transport.max_receives) == (7.0, 999)
    transport.close()


def test_no_server(channel: Desk, transport: NatsTransport, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnavailableError, match="desk: "):
        NatsTransport.find("desk", "nats://127.0.0.1:1", inbox="a", outbox="b")
    with pytest.raises(UnavailableError, match="eventplane_nats create"):
        NatsTransport.find("desk", channel.server.url, inbox="nowhere", outbox="nowhere")
    channel.operator.run(channel.operator.jetstream.delete_stream(channel.stream), SECONDS)
    with pytest.raises(UnavailableError, match="eventplane_nats create"):
        transport.put(event(), SECONDS, durable=True)
    with pytest.raises(UnavailableError, match="eventplane_nats create"):
        transport.receive(1, 0)
    assert main(["redrive", channel.address, "nobody.inbox"]) == 1
    assert "not found" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        (ClientSettings("nats://127.0.0.1:4222", "desk", state="memory:"), "transport"),
        (ClientSettings("nats:prod", "desk", state="memory:"), "transport"),
        (ClientSettings("nats://me:secret@127.0.0.1:4222/prod", "desk", state="memory:"), "transport"),
        (ClientSettings("nats://127.0.0.1:4222/prod", "desk"), "state"),
    ],
)
def test_wrong_settings_are_refused(settings: ClientSettings, setting: str) -> None:
    with pytest.raises(ClientSettingsError) as wrong:
        connect(settings)
    assert wrong.value.setting == setting


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[NatsServer]:
    """A server that wants a password and takes small messages."""
    file = tmp_path / "nats.conf"
    file.write_text("max_payload: 2048\nauthorization: { user: desk, password: right }\n")
    with Supervisor(tmp_path / "run") as supervisor:
        yield start_nats(supervisor, "guarded", tmp_path / "streams", "--config", str(file))


def credentials(password: str) -> str:
    return json.dumps({"user": "desk", "password": password})


def test_a_wrong_password_is_named(guarded: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    class Secrets:
        def get_secret_value(self, SecretId: str) -> dict[str, str]:  # noqa: N803 (boto3's name)
            assert SecretId == "nats-of-routers"
            return {"SecretString": credentials("right")}

    with pytest.raises(nats.errors.Error, match=r"(?i)authorization"):
        NatsLink(guarded.url, "desk", {CREDENTIALS: credentials("wrong")})
    NatsLink(guarded.url, "desk", {CREDENTIALS: credentials("right")}).close()
    monkeypatch.setattr("boto3.client", lambda _, **__: Secrets())
    NatsLink(guarded.url, "desk", {SECRET: "nats-of-routers"}).close()


def test_too_large(guarded: NatsServer, transport: NatsTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    large = write_event({"id": "1", "source": "/s", "type": "t"}, "x" * MAX_SENT_EVENT_BYTES)
    with pytest.raises(RefusedError, match="too_large"):
        transport.put(large, SECONDS, durable=True)

    monkeypatch.setenv(CREDENTIALS, credentials("right"))
    operator = NatsLink(guarded.url, "operator")
    own = Desk(guarded, operator, "small")
    own.make()
    inbox = own.open()
    with pytest.raises(RefusedError, match="too_large"):
        inbox.put(padded("1", 4_000), SECONDS, durable=True)
    sender = NatsSender()
    batch = [to_message(padded("1", 4_000)), to_message(padded("2", 10))]
    answers = sender.send(f"{guarded.url}/{own.stream}", batch)
    assert [each.acceptance for each in answers] == [Acceptance.NEVER, Acceptance.TAKEN]
    sender.close()
    inbox.close()
    operator.close()


def test_a_routers_copy_has_its_route(channel: Desk, transport: NatsTransport) -> None:
    sender = NatsSender()
    message = to_message(event("routed"), {"route": "alarms", "contract": "c0ffee"})
    url = f"{channel.server.url}/{channel.stream}"
    assert sender.send(url, [message]) == sender.send(url, [message]) == [TAKEN]
    (received,) = transport.receive(10, SECONDS)
    assert (ids([received]), received.route) == (["routed"], "alarms")
    assert received.sent_at_ms
    (answer,) = sender.send(f"{channel.server.url}/nowhere", [message])
    assert (answer.acceptance, "NoStreamResponse" in answer.detail) == (Acceptance.AGAIN, True)
    sender.close()


def test_server_is_down(channel: Desk, transport: NatsTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    now, tried = [1_000.0], []

    class Denied(NatsLink):
        def __init__(self, server: str, name: str) -> None:
            tried.append(server)
            raise ConnectionRefusedError("down")

    url = f"{channel.server.url}/{channel.stream}"
    sender = NatsSender(lambda: now[0])
    with monkeypatch.context() as patch:
        patch.setattr("eventplane_nats.sender.NatsLink", Denied)
        for _ in range(3):
            (answer,) = sender.send(url, [to_message(event())])
            assert (answer.acceptance, answer.detail) == (Acceptance.AGAIN, "ConnectionRefusedError: down")
    assert len(tried) == 1
    now[0] += PAUSE_S
    assert sender.send(url, [to_message(event())]) == [TAKEN]
    sender.close()


def test_a_secret_that_cannot_be_read_is_not_waited_for_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Config] = []

    class Secrets:
        def get_secret_value(self, **_: str) -> dict[str, str]:
            raise ConnectTimeoutError(endpoint_url="https://secretsmanager")

    def client(_: str, config: Config) -> Secrets:
        asked.append(config)
        return Secrets()

    monkeypatch.setattr("boto3.client", client)
    monkeypatch.setenv(SECRET, "nats-of-routers")
    threads = threading.active_count()
    sender = NatsSender()
    for _ in range(3):
        (answer,) = sender.send("nats://127.0.0.1:1/inbox", [to_message(event())])
        assert (answer.acceptance, "ConnectTimeoutError" in answer.detail) == (Acceptance.AGAIN, True)
    assert threading.active_count() == threads
    (config,) = asked
    assert config.connect_timeout + config.read_timeout <= 2
    assert config.retries == {"mode": "standard", "total_max_attempts": 1}


def test_no_time_is_left(channel: Desk, transport: NatsTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    class Slow(NatsLink):
        def __init__(self, server: str, name: str) -> None:
            now[0] += 5.0
            super().__init__(server, name)

    monkeypatch.setattr("eventplane_nats.sender.NatsLink", Slow)
    sender = NatsSender(lambda: now[0])
    (answer,) = sender.send(f"{channel.server.url}/{channel.stream}", [to_message(event())])
    assert (answer.acceptance, channel.level().messages) == (Acceptance.AGAIN, 0)
    sender.close()


def padded(id: str, size: int) -> Envelope:
    return write_event({"id": id, "source": "/s", "type": "t"}, "x" * size)


def contract_of(*participants: str, **inbox: object) -> bytes:
    nats = {"transport": "nats"}
    service = {"kind": "cloud_service", "inbox": {**nats, **inbox}, "outbox": nats}
    route = ({"prefix": {"type": "org."}}, f"{participants[0]}.inbox")
    return small_contract(
        {"device": "device", **dict.fromkeys(participants, service)}, {"up": route}
    ).canonical


@pytest.fixture
def ruled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NatsServer]:
    """A server with the rules of a contract in which `desk` and `spy` have an inbox over NATS."""
    contract = tmp_path / "contract.json"
    contract.write_bytes(contract_of("desk", "spy"))
    rules = subprocess.run(
        [sys.executable, "-m", "eventplane_nats", "rights", "nats://x/own", str(contract)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (tmp_path / "nats.conf").write_text(rules)
    for user in ("operator", "router", "desk", "spy"):
        monkeypatch.setenv(password_variable(user), f"of-{user}")
    with Supervisor(tmp_path / "run") as supervisor:
        it = start_nats(supervisor, "ruled", tmp_path / "streams", "--config", str(tmp_path / "nats.conf"))
        monkeypatch.setenv(CREDENTIALS, as_user("operator"))
        assert main(["create", f"{it.url}/own", str(contract)]) == 0
        yield it


def as_user(user: str) -> str:
    return json.dumps({"user": user, "password": f"of-{user}"})


def test_with_the_rules_of_the_contract_each_does_its_own_and_nothing_else(
    ruled: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(CREDENTIALS, as_user("spy"))
    spy = NatsLink(ruled.url, "spy")
    heard: list[bytes] = []

    async def hear(message: Msg) -> None:
        heard.append(message.data)

    spy.run(spy.nats.subscribe("_INBOX.>", cb=hear), SECONDS)
    desk_inbox, desk_outbox = "eventplane-own-desk-inbox", "eventplane-own-desk-outbox"
    for stream in (desk_inbox, desk_outbox, "eventplane-own-spy-inbox"):
        with pytest.raises(TimeoutError):
            spy.run(spy.jetstream.publish(stream, b"forged", timeout=0.5), SECONDS)
    with pytest.raises(UnavailableError):
        NatsTransport.find("spy", ruled.url, inbox=desk_inbox, outbox=desk_outbox)

    monkeypatch.setenv(CREDENTIALS, as_user("router"))
    sender = NatsSender()
    assert sender.send(f"{ruled.url}/{desk_inbox}", [to_message(event("true"))]) == [TAKEN]
    sender.close()
    monkeypatch.setenv(CREDENTIALS, as_user("desk"))
    with connect(ClientSettings(f"{ruled.url}/own", "desk", mode=Mode.AT_LEAST_ONCE)) as desk:
        desk.put(event("sent"))
        with desk.subscribe() as inbox:
            assert inbox.get(SECONDS).id == "true"
    outbox = NatsTransport.find("desk", ruled.url, inbox=desk_outbox, outbox=desk_outbox)  # as the relay does
    assert ids(outbox.receive(10, SECONDS)) == ["sent"]
    outbox.close()
    monkeypatch.setenv(CREDENTIALS, as_user("operator"))
    capsys.readouterr()
    assert main(["redrive", f"{ruled.url}/own", "desk.outbox"]) == 0
    assert main(["status", f"{ruled.url}/own", str(tmp_path / "contract.json")]) == 0
    assert f"{desk_outbox}: 1 messages, 0 in flight, 0 given up" in capsys.readouterr().out
    spy.run(spy.nats.flush(), SECONDS)
    assert heard == []
    spy.close()


@pytest.mark.parametrize("channel", ["desk-inbox", "desk-outbox"])
def test_a_service_keeps_its_channel(
    ruled: NatsServer, monkeypatch: pytest.MonkeyPatch, channel: str
) -> None:
    own, others = "eventplane-own-spy-outbox", f"eventplane-own-{channel}"
    monkeypatch.setenv(CREDENTIALS, as_user("desk" if channel == "desk-outbox" else "router"))
    it = NatsLink(ruled.url, "desk" if channel == "desk-outbox" else "router")
    it.run(it.jetstream.publish(others, b"true", stream=others), SECONDS)
    it.close()

    monkeypatch.setenv(CREDENTIALS, as_user("spy"))
    spy = NatsLink(ruled.url, "spy")
    spy.run(spy.jetstream.publish(own, b"forged"), SECONDS)

    async def misuse() -> None:
        # The subject for an answer is not among the permissions of who asks.
        ask = json.dumps({"batch": 1, "no_wait": True}).encode()
        await spy.nats.publish(f"$JS.API.CONSUMER.MSG.NEXT.{own}.reader", ask, reply=others)
        await spy.nats.publish(own, b"", reply=f"$JS.API.STREAM.PURGE.{others}")
        await spy.nats.publish(own, b"", reply=f"desk.JS.API.STREAM.PURGE.{others}")
        # What the server does for one client it does in turn.
        await spy.jetstream.publish(own, b"last")

    spy.run(misuse(), SECONDS)
    spy.close()
    monkeypatch.setenv(CREDENTIALS, as_user("desk"))
    desk = NatsTransport.find("desk", ruled.url, inbox=others, outbox=others)
    assert [each.body for each in desk.receive(10, 1)] == [b"true"]
    desk.close()
