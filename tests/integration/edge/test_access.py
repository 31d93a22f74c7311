"""A broker that keeps services apart: each writes and reads what the contract gives it, and nothing else."""

import threading
from collections.abc import Iterator

import pytest

from contract.acl import FORWARDER
from eventplane.envelope import Envelope, write_event
from eventplane.topics import local_topic
from eventplane_client import Client, connect
from eventplane_mqtt.mailbox import Acknowledged, Connected, Received
from lab.process import Supervisor
from tests.integration.access import Guarded, start_guarded
from tests.integration.edge.conftest import SECONDS, MakeHome, RecordingCloud, wait_for
from tests.unit.eventplane_mqtt.probe import Probe

READING = "org.eventplane.health.reading.v1"
ALARM = "org.eventplane.alarm.keyword.v1"
OUTBOX = local_topic("health-service", "outbox")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    with Supervisor(folder / "run") as supervisor:
        yield start_guarded(supervisor, "home", folder)


def event(id: str, type_: str = READING) -> Envelope:
    return write_event({"id": id, "source": "/homes/1/health", "type": type_}, {"value": 1})


def probe_of(guarded: Guarded, user: str, topics: tuple[str, ...] = (), **changes: object) -> Probe:
    """A connection of `user` that stands, in a new session."""
    login = guarded.login(user)
    it = Probe(guarded.broker.port, login=login, subscriptions=topics, clean_session=True, **changes)
    it.next(Connected)
    return it


def client(guarded: Guarded, service: str) -> Client:
    password_file = str(guarded.login(service).password_file)
    address = f"mqtt://127.0.0.1:{guarded.broker.port}"
    return connect(address, service, mode="at_least_once", password_file=password_file)


@pytest.mark.source("P2")
def test_events_take_their_way_through_the_forwarder_as_without_rules(
    make_home: MakeHome, guarded: Guarded, cloud: RecordingCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENTPLANE_LOG_LEVEL", "debug")
    login = guarded.login(FORWARDER)
    local = {"username": login.username, "password_file": str(login.password_file)}
    home = make_home(cloud.port, broker=guarded.broker, local=local)
    calls: list[Envelope] = []
    with (
        client(guarded, "call-service") as call,
        client(guarded, "voice-service") as voice,
        client(guarded, "health-service") as health,
    ):
        threading.Thread(target=call.subscribe().handle, args=(calls.append,), daemon=True).start()
        health.put(event("e1"))
        health.flush(SECONDS)  # from now on the forwarder hears the outbox
        stranger = probe_of(guarded, "climate-service")
        stranger.connection.publish(OUTBOX, event("forged").json.encode())
        stranger.next(Acknowledged)  # Mosquitto says so in MQTT 3.1.1, and drops it
        health.put(event("e3"))
        health.flush(SECONDS)
        voice.put(event("e2", ALARM))
        wait_for(lambda: [each.id for each in calls] == ["e2"])
        wait_for(lambda: cloud.has({"e1", "e2", "e3"}))
        wait_for(home.drained)
        stranger.close()
    assert "forged" not in {each.id for each in cloud.events}
    assert "secret" not in home.log()


@pytest.mark.source("P2")
@pytest.mark.parametrize("box", ["inbox", "interest"])
def test_a_service_uses_only_its_own_topics(guarded: Guarded, box: str) -> None:
    boxes = [local_topic(name, box) for name in ("call-service", "voice-service")]
    writer, reader = "voice-service", FORWARDER
    if box == "inbox":
        writer, reader = reader, writer
    spy = probe_of(guarded, reader, ("#", *boxes) if box == "inbox" else tuple(boxes))
    sender = probe_of(guarded, writer)
    for each in boxes:
        sender.connection.publish(each, b"for its reader")
    # Mosquitto keeps the order of one sender: what comes first is what comes at all.
    assert spy.next(Received).topic == local_topic("voice-service", box)
    spy.close()
    sender.close()
