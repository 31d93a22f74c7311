"""What a device makes of messages on mapped topics, and which of them are the same."""

from typing import Any

import pytest

from edge.dispatch import UrgentHint, subscriptions
from edge.forwarder import Reload
from edge.planning import MOST_LETTERS
from eventplane.contract import Contract
from eventplane.device_reports import DISCARDED
from eventplane.envelope import Envelope
from eventplane.limits import MAX_EVENT_BYTES
from eventplane.topics import OUTBOXES
from eventplane_mqtt.mailbox import Acknowledged, LinkName, Received
from tests.small_contract import MOTION, mapped
from tests.unit.edge.fakes import ALARM, DEAD_LETTER, Device, MakeDevice, contract, event

PLANE = mapped(contract(), ALARM)
MOVED = b'{"occupancy": true, "battery": 90}'
KITCHEN, SMOKE, SENSOR = "zigbee2mqtt/kitchen/motion", "zigbee2mqtt/kitchen/smoke", "tele/plug/SENSOR"


@pytest.fixture
def mapping_device(make: MakeDevice) -> Device:
    return make(plane=PLANE)


def publish(device: Device, payload: bytes, topic: str = KITCHEN, mid: int = 1, **flags: Any) -> None:
    """One round with a message that the broker sends under packet id `mid`."""
    session = LinkName.URGENT if topic == SMOKE else LinkName.LOCAL
    generation = device.links[session].generation
    device.turn(Received(session, generation, mid, topic, payload, **flags))


def moved(device: Device) -> list[Envelope]:
    return device.waiting(type=MOTION)


def letters(device: Device) -> list[dict[str, Any]]:
    return [each.data() for each in device.waiting(type=DEAD_LETTER)]


def test_a_message_becomes_an_event_of_its_participant(mapping_device: Device) -> None:
    publish(mapping_device, MOVED)
    (found,) = moved(mapping_device)
    assert found.sender.service == "zigbee"
    assert (found.source, found.attributes["subject"]) == (f"/devices/thing/zigbee/{KITCHEN}", "flat/kitchen")
    assert found.data() == {"state": "moved", "battery": 90}
    assert found.attributes["devicesequence"]
    assert mapping_device.local.last.acknowledged == [1]


def test_a_redelivery_is_the_same_event_also_after_a_crash(mapping_device: Device) -> None:
    publish(mapping_device, MOVED, mid=7)
    mapping_device.restart()
    publish(mapping_device, MOVED, mid=7, duplicate=True)
    assert len(moved(mapping_device)) == 1
    assert mapping_device.local.last.acknowledged == [7]


def test_a_redelivery_of_what_was_not_stored_is_an_event(mapping_device: Device) -> None:
    publish(mapping_device, MOVED, mid=7, duplicate=True)
    assert len(moved(mapping_device)) == 1


def test_a_new_session_begins_its_packet_ids_again(mapping_device: Device) -> None:
    device = mapping_device
    publish(device, MOVED, mid=7)
    device.disconnect(LinkName.LOCAL)
    device.local.last.resumed = False
    device.connect(LinkName.LOCAL)
    for _ in range(2):
        publish(device, MOVED, mid=7, duplicate=True)
        assert len(moved(device)) == 2
        device.restart()


@pytest.mark.parametrize("mids", [(7, 8, 7), (0, 0, 0)])
def test_an_equal_message_is_another_event(mapping_device: Device, mids: tuple[int, ...]) -> None:
    for mid in mids:
        publish(mapping_device, MOVED, mid=mid)
    assert len({each.id for each in moved(mapping_device)}) == 3


def test_equal_messages_of_one_batch_are_events(mapping_device: Device) -> None:
    generation = mapping_device.links[LinkName.LOCAL].generation
    mapping_device.turn(*[Received(LinkName.LOCAL, generation, 3, KITCHEN, MOVED)] * 2)
    assert len(moved(mapping_device)) == 2


def test_a_message_with_an_id_is_once(mapping_device: Device) -> None:
    for mid, time in ((1, "T1"), (2, "T1"), (0, "T1"), (3, "T2")):
        publish(mapping_device, b'{"Time": "%s"}' % time.encode(), SENSOR, mid)
    publish(mapping_device, b'{"Time": "T1"}', "tele/other/SENSOR")
    assert [each.id for each in moved(mapping_device)] == ["T1", "T2", "T1"]


def test_what_is_no_event_is_ignored(mapping_device: Device) -> None:
    publish(mapping_device, b'{"occupancy": false}', mid=1)
    publish(mapping_device, b"", mid=2)
    publish(mapping_device, MOVED, mid=3, retained=True)
    assert not moved(mapping_device)
    assert not letters(mapping_device)
    assert mapping_device.local.last.acknowledged == [1, 2, 3]


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"ON", "not_json"),
        (b'{"occupancy": true, "battery": "%s"}' % (b"x" * MAX_EVENT_BYTES), "too_large"),
    ],
)
def test_what_does_not_fit_is_a_dead_letter(mapping_device: Device, payload: bytes, reason: str) -> None:
    publish(mapping_device, payload)
    (found,) = letters(mapping_device)
    assert (found["reason"], found["channel"]) == (reason, "zigbee.outbox")


def test_a_huge_message_is_a_dead_letter(mapping_device: Device) -> None:
    publish(mapping_device, b"{", oversize=900_000)
    (found,) = letters(mapping_device)
    assert found["reason"] == "too_large"
    assert KITCHEN in found["detail"]


def test_a_flood_of_dead_letters_is_counted(mapping_device: Device) -> None:
    for number in range(MOST_LETTERS + 5):
        publish(mapping_device, b"%d ON" % number, mid=number + 1)
    assert len(letters(mapping_device)) == MOST_LETTERS
    assert mapping_device.not_stored()["zigbee.outbox", "not_json"] == 5


def test_an_alarm_has_the_urgent_session_alone(mapping_device: Device) -> None:
    urgent, first = (subscriptions(PLANE, each) for each in (LinkName.URGENT, LinkName.LOCAL))
    assert "zigbee2mqtt/+/smoke" in {*urgent} - {*first}
    assert {"zigbee2mqtt/+/motion", "tele/+/SENSOR", "homeassistant/switch/#"} <= {*first} - {*urgent}
    assert UrgentHint(lambda: PLANE).may_be_urgent(SMOKE, b'{"smoke": true}')
    publish(mapping_device, b'{"smoke": true}', SMOKE)
    assert mapping_device.urgent.last.acknowledged == [1]
    assert len(mapping_device.delivered("call")) == 1


def test_an_outbox_of_urgent_events_makes_its_mappings_urgent() -> None:
    plane = mapped(contract(), ALARM, {"outbox/priority": "urgent"})
    assert "zigbee2mqtt/+/motion" in subscriptions(plane, LinkName.URGENT)


def test_a_program_has_its_own_outbox_as_well(mapping_device: Device) -> None:
    claim = event("e1", ALARM).json.encode()
    mapping_device.turn(mapping_device.from_service(claim, "zigbee"))
    assert mapping_device.ids_at("call") == ["e1"]


@pytest.mark.parametrize("session", [LinkName.LOCAL, LinkName.URGENT])
def test_what_waited_for_another_thing_is_counted(mapping_device: Device, session: LinkName) -> None:
    generation = mapping_device.links[session].generation
    mapping_device.turn(Received(session, generation, 1, KITCHEN, MOVED, foreign=True))
    assert not moved(mapping_device)
    mapping_device.turn(after=61.0)
    assert mapping_device.not_stored()[OUTBOXES, "another_thing"] == 1


def test_another_contract_changes_what_is_mapped(mapping_device: Device) -> None:
    mapping_device.turn(Reload(mapped(contract(), ALARM, {"mappings/motion/when": {"/occupancy": False}})))
    publish(mapping_device, MOVED, mid=1)
    publish(mapping_device, b'{"occupancy": false}', mid=2)
    assert len(moved(mapping_device)) == 1
    mapping_device.turn(Reload(contract()))
    publish(mapping_device, MOVED, mid=3)
    assert not letters(mapping_device)
    assert len(moved(mapping_device)) == 1


def test_former_topics_are_left_once_both_sessions_are_up(mapping_device: Device) -> None:
    device = mapping_device
    changes = {"mappings/motion/topic": "zigbee2mqtt/{room}/motion/x", "mappings/smoke/topic": "smoke/{room}"}
    device.turn(Reload(mapped(contract(), ALARM, changes)))
    device.redial(LinkName.LOCAL)
    assert not device.local.last.left  # the other session has not subscribed yet
    device.connect(LinkName.URGENT)
    assert device.local.last.left == ["zigbee2mqtt/+/motion"]
    assert device.urgent.last.left == ["zigbee2mqtt/+/smoke"]


def test_a_mapping_that_becomes_urgent_leaves_the_first_session(mapping_device: Device) -> None:
    device = mapping_device
    device.turn(Reload(mapped(contract(), ALARM, {"outbox/priority": "urgent"})))
    device.redial(LinkName.LOCAL, LinkName.URGENT)
    assert "zigbee2mqtt/+/motion" in {*device.local.last.left} - {*device.urgent.last.left}


def topic(name: str) -> Contract:
    return mapped(contract(), ALARM, {"mappings/motion/topic": name})


def test_topics_of_former_runs_are_left(mapping_device: Device) -> None:
    device = mapping_device
    # Meanwhile the broker is away.
    for plane in (topic("a/{room}"), contract(), topic("b/{room}"), contract()):
        device.contract = plane
        device.restart(connected=False)
    device.connect(LinkName.LOCAL, LinkName.URGENT)
    assert {"zigbee2mqtt/+/motion", "a/+", "b/+"} <= {*device.local.last.left}
    assert {*device.urgent.last.left} == {"zigbee2mqtt/+/smoke"}
    device.reconnect(LinkName.LOCAL)
    assert "a/+" in device.local.last.left  # whose answer is not known
    for session, wire in ((LinkName.LOCAL, device.local.last), (LinkName.URGENT, device.urgent.last)):
        device.turn(Acknowledged(session, wire.generation, 60_000 + len(wire.left)))
    device.reconnect(LinkName.LOCAL)
    assert not device.local.last.left
    assert not device.path.with_name("spool.db.topics").exists()


@pytest.mark.parametrize("damage", [b"\xff", b"local #\nlocal eventplane/+/outbox\ncloud a/b\nx", None])
def test_a_damaged_list_of_topics_is_ignored(mapping_device: Device, damage: bytes | None) -> None:
    file = mapping_device.path.with_name("spool.db.topics")
    file.unlink()
    file.mkdir() if damage is None else file.write_bytes(damage)
    mapping_device.restart()
    assert not mapping_device.local.last.left
    publish(mapping_device, MOVED)
    assert len(moved(mapping_device)) == 1


def test_the_urgent_session_ends_no_delivery(mapping_device: Device) -> None:
    device = mapping_device
    device.send(event("e1", subject="show"))
    (mid,) = (mid for mid, name, _ in device.local.last.published if name == "eventplane/display/inbox")
    device.turn(Acknowledged(LinkName.URGENT, device.urgent.last.generation, mid))
    device.reconnect(LinkName.LOCAL)
    assert device.ids_at("display") == ["e1"]


def test_a_full_spool_refuses_and_counts(make: MakeDevice) -> None:
    device = make(plane=PLANE, capacity_deliveries=40)
    for number in range(60):
        publish(device, MOVED, mid=number + 1)
    assert len(moved(device)) < 60
    device.turn(after=61.0)
    assert device.not_stored()["zigbee.outbox", "spool_full"] == 60 - len(moved(device))
    assert device.waiting(type=DISCARDED)
