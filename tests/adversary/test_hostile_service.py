"""What a hostile service on the victim's own device tries, with its user at the home's broker."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from paho.mqtt.client import CallbackAPIVersion, Client, MQTTv5, Properties
from paho.mqtt.packettypes import PacketTypes

from eventplane.attributes import attribute_text
from eventplane.envelope import write_event
from eventplane.receipts import Receipt, digest, write_receipts
from eventplane.topics import local_topic, receipt_topic
from eventplane_mqtt.mailbox import Acknowledged, Connected, Received
from tests.adversary.conftest import Attempt
from tests.adversary.forgeries import CLIMATE, PULSE, SERVICE
from tests.adversary.world import ALARM, HELP, VICTIM, VOICE, World, new_id
from tests.unit.eventplane_mqtt.probe import Probe

USER = "climate-service"
DROPPED = "Mosquitto drops it without a word; its own log has it with `log_type debug` only"


@pytest.fixture
def connect(world: World) -> Iterator[Callable[..., Probe]]:
    """Makes connections to the home's broker as the hostile service's user."""
    made: list[Probe] = []

    def connect(**changes: Any) -> Probe:
        usual = {"login": world.guarded.login(USER), "subscriptions": (), "keepalive_s": 600}
        # The broker knows a connection by its user: without a session nothing is left for the next one.
        probe = Probe(world.home.broker.port, **usual | {"clean_session": True} | changes)
        made.append(probe)
        probe.next(Connected)
        return probe

    yield connect
    for each in made:
        each.connection.close(5)


def alarm(**attributes: str) -> Any:
    return write_event({"id": new_id(), "source": VOICE, "type": ALARM, **attributes}, HELP)


@pytest.mark.parametrize("place", ["the voice service's outbox", "the call service's inbox"])
def test_anothers_topic(world: World, attempt: Attempt, connect: Callable[..., Probe], place: str) -> None:
    """home-7/climate-service: publish an alarm to"""
    event = alarm()
    topic = local_topic(*(("voice-service", "outbox") if "outbox" in place else ("call-service", "inbox")))
    probe = connect()
    probe.connection.publish(topic, event.json.encode())
    probe.next(Acknowledged)
    # What the broker takes from the voice service after it comes out after it.
    attempt.refused(world.is_heard(world.calls_for_help()), "a true alarm was not heard")
    attempt.refused(not world.who_got(event), world.who_got(event))
    attempt.untraced(DROPPED)


def test_a_receipt_of_another_service(world: World, attempt: Attempt, connect: Callable[..., Probe]) -> None:
    """home-7/climate-service: confirm in the call service's place an alarm that it has not handled"""
    event = alarm()
    probe = connect()
    probe.connection.publish(
        receipt_topic("call-service", "inbox"), write_receipts([Receipt(digest(event.json.encode()))])
    )
    probe.next(Acknowledged)
    world.home.services["voice-service"].put(event)
    attempt.refused(world.is_heard(event), "the alarm was not heard")
    attempt.untraced(DROPPED)


def test_a_listener_on_everything(world: World, attempt: Attempt, connect: Callable[..., Probe]) -> None:
    """home-7/climate-service: subscribe to every topic of the broker, and to the call service's inbox"""
    spy = connect(
        subscriptions=("#", local_topic("call-service", "inbox"), local_topic("voice-service", "outbox"))
    )
    assert world.is_heard(world.calls_for_help())
    # Its own receipt is what it may read: by then the alarm has passed.
    climate = write_event({"id": new_id(), "source": f"/homes/{VICTIM}/climate", "type": CLIMATE}, PULSE)
    spy.connection.publish(local_topic(USER, "outbox"), climate.json.encode())
    (came,) = spy.gather(Received, 1)
    attempt.refused(came.topic == receipt_topic(USER, "outbox"), f"it read {came.topic}")
    attempt.untraced(DROPPED)


def test_anothers_client_id(world: World, attempt: Attempt, connect: Callable[..., Probe]) -> None:
    """home-7/climate-service: connect by the client id of the call service, to take its inbox over"""
    connect(client_id="eventplane-call-service", subscriptions=(local_topic("call-service", "inbox"),))
    attempt.refused(world.is_heard(world.calls_for_help()), "the alarm was not heard")
    attempt.untraced("the broker keeps the client ids of users apart: nothing happens that could be told")


def test_binary_mode(world: World, attempt: Attempt) -> None:
    """home-7/climate-service: call for help in MQTT 5's binary mode, naming the voice service"""
    event = alarm(senderservice="voice-service", subject=new_id())
    payload = json.dumps(event.data()).encode()
    properties = Properties(PacketTypes.PUBLISH)
    properties.ContentType = "application/json"
    named = {name: value for name, value in event.attributes.items() if name != "datacontenttype"}
    properties.UserProperty = [(name, attribute_text(value)) for name, value in named.items()]
    client = Client(CallbackAPIVersion.VERSION2, client_id=new_id(), protocol=MQTTv5)
    client.username_pw_set(USER, world.guarded.login(USER).password().decode())
    client.connect("127.0.0.1", world.home.broker.port)
    client.loop_start()
    try:
        sent = client.publish(local_topic(USER, "outbox"), payload, qos=1, properties=properties)
        sent.wait_for_publish(10)
    finally:
        client.disconnect()
        client.loop_stop()
    # For the forwarder the payload is all that there is of an event.
    assert world.comes(lambda: world.letter_about(payload) is not None)
    letter = world.letter_about(payload)
    attempt.reported((letter.sender, letter.data["reason"]) == (SERVICE, "missing_attribute"), letter.data)
    attempt.refused(not world.who_got(event), world.who_got(event))
