"""A broker that keeps services apart: each writes and reads what the contract gives it, and nothing else."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from contract.acl import FORWARDER
from eventplane.envelope import Envelope, write_event
from eventplane.topics import interest_topic, local_topic
from eventplane_client import Client, connect
from eventplane_mqtt import Login
from eventplane_mqtt.mailbox import Acknowledged, Connected, Disconnected, Received
from local.process import Supervisor
from tests.integration.access import Guarded, start_guarded
from tests.integration.edge.conftest import SECONDS, CloudBroker, MakeHome, wait_for
from tests.integration.edge.probe import Probe

READING = "org.eventplane.health.reading.v1"
ALARM = "org.eventplane.alarm.keyword.v1"
OUTBOX = local_topic("health-service", "outbox")
NOT_AUTHORIZED = "not authorized"


@pytest.fixture
def guarded(supervisor: Supervisor, tmp_path: Path) -> Guarded:
    return start_guarded(supervisor, "home", tmp_path)


def event(id: str, type_: str = READING) -> Envelope:
    return write_event({"id": id, "source": "/homes/1/health", "type": type_}, {"value": 1})


def probe_of(guarded: Guarded, user: str, topics: tuple[str, ...] = (), **changes: object) -> Probe:
    """A connection of `user` that stands."""
    it = Probe(guarded.broker.port, login=guarded.login(user), subscriptions=topics, **changes)
    it.next(Connected)
    return it


def client(guarded: Guarded, service: str) -> Client:
    password_file = str(guarded.login(service).password_file)
    address = f"mqtt://127.0.0.1:{guarded.broker.port}"
    return connect(address, service, mode="at_least_once", password_file=password_file)


def refusal(guarded: Guarded, login: Login | None, protocol: str) -> str:
    """Why the broker did not take a connection."""
    return Probe(guarded.broker.port, login=login, protocol=protocol).next(Disconnected).reason


@pytest.mark.source("P2")
def test_events_take_their_way_through_the_forwarder_as_without_rules(
    make_home: MakeHome, guarded: Guarded, cloud: CloudBroker, monkeypatch: pytest.MonkeyPatch
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


def test_in_mqtt_5_a_service_is_told_that_anothers_outbox_is_not_its_own(guarded: Guarded) -> None:
    it = probe_of(guarded, "climate-service", protocol="5", session_expiry_s=0)
    it.connection.publish(OUTBOX, b"forged")
    assert it.next(Acknowledged).failure == NOT_AUTHORIZED
    it.connection.publish(local_topic("climate-service", "outbox"), b"its own")
    assert it.next(Acknowledged).failure is None
    it.close()


@pytest.mark.source("P2")
def test_a_service_reads_its_own_inbox_and_no_other(guarded: Guarded) -> None:
    inboxes = [local_topic(name, "inbox") for name in ("call-service", "voice-service")]
    spy = probe_of(guarded, "voice-service", ("#", *inboxes))
    forwarder = probe_of(guarded, FORWARDER)
    for inbox in inboxes:
        forwarder.connection.publish(inbox, b"for its reader")
    # What comes first is what comes at all: the broker keeps the order of the forwarder's messages.
    assert spy.next(Received).topic == local_topic("voice-service", "inbox")
    spy.close()
    forwarder.close()


def test_a_client_id_of_another_service_takes_nothing_from_it(guarded: Guarded) -> None:
    victim = probe_of(guarded, "voice-service", (local_topic("voice-service", "inbox"),))
    thief = probe_of(guarded, "climate-service", client_id="voice-service")
    forwarder = probe_of(guarded, FORWARDER)
    forwarder.connection.publish(local_topic("voice-service", "inbox"), b"hers")
    assert victim.next(Received).payload == b"hers"
    for each in (victim, thief, forwarder):
        each.close()


@pytest.mark.parametrize("protocol", ["3.1.1", "5"])
def test_who_shows_no_password_or_a_wrong_one_hears_what_to_do(guarded: Guarded, protocol: str) -> None:
    login = guarded.login(FORWARDER)
    login.password_file.write_text("guessed\n")
    reason = refusal(guarded, login, protocol)
    assert "CONNECT refused: not authorized; see that the broker knows this user name and password" in reason
    assert "guessed" not in reason
    reason = refusal(guarded, None, protocol)
    assert "see whether the broker wants a user name and password" in reason


def test_a_service_announces_its_own_interest_and_no_other_s(guarded: Guarded) -> None:
    topics = tuple(interest_topic(name) for name in ("call-service", "voice-service"))
    forwarder = probe_of(guarded, FORWARDER, topics)
    voice = probe_of(guarded, "voice-service")
    for topic in topics:
        voice.connection.publish(topic, b"what it handles", retain=True)
        voice.next(Acknowledged)
    # Mosquitto keeps the order of one sender: what comes first is what comes at all.
    assert forwarder.next(Received).topic == interest_topic("voice-service")
    for each in (forwarder, voice):
        each.close()
