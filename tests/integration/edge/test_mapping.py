"""Programs that publish plain JSON at a real Mosquitto, and one of them that wants more than its mappings."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from contract.acl import FORWARDER
from contract.loader import load_contract
from eventplane.contract import Contract
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.envelope import Envelope, write_event
from eventplane.topics import local_topic
from eventplane_mqtt.mailbox import Acknowledged, Connected, Received
from lab.mosquitto import Broker, plain_client
from lab.process import Supervisor
from tests.integration.access import start_guarded
from tests.integration.edge.conftest import Home, MakeHome, RecordingCloud, wait_for
from tests.integration.edge.test_operations import signal_forwarder
from tests.integration.mqtt import TestClient
from tests.small_contract import MOTION, mapped, with_changes
from tests.unit.eventplane_mqtt.probe import Probe

ALARM = "org.eventplane.alarm.keyword.v1"
FIRE = "org.eventplane.alarm.smoke.v1"
MOVED = b'{"occupancy": true}'
KITCHEN, SMOKE = "zigbee2mqtt/kitchen/motion", "zigbee2mqtt/kitchen/smoke"


@pytest.fixture
def home_contract() -> Contract:
    smoke = {f"event_types/{FIRE}": {"description": "It burns.", "priority": "urgent"}}
    return mapped(with_changes(load_contract(), smoke), FIRE)


def of_type(cloud: RecordingCloud, type_: str) -> list[Envelope]:
    return [each for each in cloud.events if each.type == type_]


def test_a_program_s_messages_are_events_and_its_alarm_reaches_the_home(
    home: Home, cloud: RecordingCloud
) -> None:
    calls: list[Envelope] = []
    home.listen("call-service", calls.append)
    with TestClient("zigbee2mqtt", "127.0.0.1", home.broker.port) as program:
        for topic, payload in (
            (KITCHEN, MOVED),
            (KITCHEN, b'{"occupancy": false}'),
            (KITCHEN, b"ON"),
            ("zigbee2mqtt/bridge/state", b'{"state": "online"}'),
            ("homeassistant/switch/lamp/state", b"ON"),
            (SMOKE, b'{"smoke": true}'),
        ):
            assert program.publish(topic, payload)
    wait_for(lambda: len(calls) == 1)
    assert calls[0].source == f"/devices/home-1/zigbee/{SMOKE}"
    wait_for(lambda: len(of_type(cloud, MOTION)) == 2 and bool(of_type(cloud, DEAD_LETTER_TYPE)))
    assert [each.data() for each in of_type(cloud, MOTION)] == [{"state": "moved"}, {"state": "ON"}]
    assert [each.data()["reason"] for each in of_type(cloud, DEAD_LETTER_TYPE)] == ["not_json"]


@pytest.mark.parametrize("restarts", [False, True])
def test_the_broker_repeats_a_message_under_its_packet_id(
    mosquitto: Callable[[str], Broker], restarts: bool
) -> None:
    """As `MappedMessage.derived_id` expects: the flag and the id tell a redelivery from an equal message."""
    broker = mosquitto("home")
    first = Probe(broker.port, subscriptions=(KITCHEN,))
    first.next(Connected)
    with TestClient("zigbee2mqtt", "127.0.0.1", broker.port) as program:
        assert all(program.publish(KITCHEN, MOVED) for _ in range(2))
    seen = first.gather(Received, 2)
    assert len({each.mid for each in seen}) == 2
    assert not any(each.duplicate for each in seen)
    first.close()  # without acknowledgements
    if restarts:
        broker.child.stop()
        broker.child.start()
    again = Probe(broker.port, subscriptions=(KITCHEN,))
    found = again.gather(Received, 2)
    assert [(each.mid, each.duplicate) for each in found] == [(each.mid, True) for each in seen]
    again.close()


@pytest.mark.parametrize("way", ["reload", "restart", "two contracts while the broker is away"])
def test_another_pattern_for_a_topic_does_not_double_its_messages(
    home: Home, cloud: RecordingCloud, home_contract: Contract, way: str
) -> None:
    changes = {
        "mappings/motion/topic": "zigbee2mqtt/kitchen/{sensor}",
        "mappings/motion/attributes": None,
        "mappings/smoke": None,
        "outbox/priority": "urgent",
    }
    paths = {f"participants/zigbee/{path}": value for path, value in changes.items()}
    file = home.settings.with_name("contract.json")
    if way.startswith("two"):
        home.broker.child.stop()
        file.write_bytes(load_contract().canonical)
        signal_forwarder(home, signal.SIGHUP)
        wait_for(lambda: home.logged(" follows ") > 0)
    file.write_bytes(with_changes(home_contract, paths).canonical)
    if way == "reload":
        signal_forwarder(home, signal.SIGHUP)
    else:
        home.forwarder.kill()
        home.forwarder.start()
    if way.startswith("two"):
        home.broker.child.start()
    # Once both of its sessions are up.
    wait_for(lambda: home.logged("left the former topics") > 0)
    with TestClient("zigbee2mqtt", "127.0.0.1", home.broker.port) as program:
        for number in range(3):
            assert program.publish(KITCHEN, b'{"occupancy": true, "battery": %d}' % number)
    wait_for(lambda: len(of_type(cloud, MOTION)) >= 3 and home.drained())
    assert [each.data()["battery"] for each in of_type(cloud, MOTION)] == [0, 1, 2]


def test_a_retained_state_is_no_event(
    make_home: MakeHome, cloud: RecordingCloud, home_contract: Contract, mosquitto: Callable[[str], Broker]
) -> None:
    broker = mosquitto("home")
    with plain_client("zigbee2mqtt", broker.port) as program:
        program.publish(SMOKE, b'{"smoke": true}', qos=1, retain=True).wait_for_publish()
    home = make_home(cloud.port, broker=broker, contract=home_contract)
    with TestClient("zigbee2mqtt", "127.0.0.1", broker.port) as program:
        assert program.publish(KITCHEN, MOVED)
    wait_for(lambda: bool(of_type(cloud, MOTION)))
    assert not of_type(cloud, FIRE)
    assert "dead letters" not in home.log()


@pytest.mark.source("P2")
def test_a_mapped_program_speaks_for_nobody_else(
    supervisor: Supervisor,
    make_home: MakeHome,
    cloud: RecordingCloud,
    home_contract: Contract,
    tmp_path: Path,
) -> None:
    guarded = start_guarded(supervisor, "guarded", tmp_path / "guarded", home_contract)
    login = guarded.login(FORWARDER)
    local = {"username": login.username, "password_file": str(login.password_file)}
    make_home(cloud.port, broker=guarded.broker, local=local, contract=home_contract)
    names = ("zigbee", "health-service")
    zigbee, other = (
        Probe(guarded.broker.port, login=guarded.login(each), subscriptions=(), client_id=each)
        for each in names
    )
    for each in (zigbee, other):
        each.next(Connected)

    def say(probe: Probe, topic: str, payload: bytes) -> None:
        probe.connection.publish(topic, payload)
        probe.next(Acknowledged)  # also of what the broker drops, in MQTT 3.1.1

    def claim(type_: str, source: str) -> bytes:
        return write_event({"id": "1", "source": source, "type": type_}).json.encode()

    # Another's topics are not its own, and its topics are nobody else's.
    say(zigbee, local_topic("voice-service", "outbox"), claim(ALARM, "/homes/1/voice"))
    say(other, KITCHEN, MOVED)
    # Its own outbox gives it its own types only.
    say(zigbee, local_topic("zigbee", "outbox"), claim(ALARM, "/homes/1/voice"))
    # Nothing in a payload or a topic becomes type, source or sender.
    forged = b'{"occupancy": true, "type": "x", "source": "/y", "senderservice": "voice-service"}'
    say(zigbee, "zigbee2mqtt/..%2f voice/motion", forged)
    wait_for(lambda: len(of_type(cloud, MOTION)) == 1 and bool(of_type(cloud, DEAD_LETTER_TYPE)))
    (moved,) = of_type(cloud, MOTION)
    assert moved.sender.service == "zigbee"
    assert moved.source == "/devices/home-1/zigbee/zigbee2mqtt/..%252f%20voice/motion"
    assert [each.data()["reason"] for each in of_type(cloud, DEAD_LETTER_TYPE)] == ["sender_not_allowed"]
    assert not of_type(cloud, ALARM)
    for each in (zigbee, other):
        each.close()
