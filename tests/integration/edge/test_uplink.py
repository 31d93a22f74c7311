"""The forwarder as a process between a real Mosquitto and an IoT Core that keeps quotas and misbehaves."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from edge.spool import read_backlog
from eventplane.names import SEQUENCE
from eventplane.topics import local_topic
from local.certificates import Authority
from local.ports import LOOPBACK
from tests.integration.edge.conftest import READING, SECONDS, Home, MakeHome, event, ids, send, wait_for
from tests.integration.edge.iot_core import Answer, IotCore, Published, Quota

ALARM = "org.eventplane.alarm.keyword.v1"
QUICK = {
    # The pace keeps a distance from the quota: what is spread here may arrive closer together there.
    "publishes_per_s": 50, "bytes_per_s": 256 * 1024, "batch_events": 10,
    "puback_timeout_s": 1.0, "connect_timeout_s": 1.0, "reconnect_min_s": 1.05, "reconnect_max_s": 1.05,
}  # fmt: skip

RESTARTS = Quota(connect_every_s=0.0)
"""A new process does not know when the one before it connected; its supervisor waits before it starts one."""


@pytest.fixture
def iot_core(authority: Authority) -> Iterator[IotCore]:
    server = authority.issue("iot")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.ca))
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_cert_chain(server.certificate, server.key)
    it = IotCore(tls)
    yield it
    it.close()


@pytest.fixture
def start(make_home: MakeHome, iot_core: IotCore) -> Callable[..., Home]:
    """Starts the home, with settings of the cloud's side."""
    return lambda **cloud_settings: make_home(iot_core.port, **QUICK | cloud_settings)


def put(home: Home, first: int, last: int, type_: str = READING) -> None:
    service = home.connect("health-service")
    send(service, first, last, type_)
    service.flush(SECONDS)


def arrived(home: Home, iot_core: IotCore, count: int) -> None:
    """All that was stored comes to the cloud, the line ends in peace, and the quotas were kept."""
    wait_for(lambda: iot_core.has(ids(count)))
    wait_for(lambda: not read_backlog(home.spool)["device.outbox"])
    assert not iot_core.violations
    assert "Traceback" not in home.log()


def assert_first_deliveries_in_order(iot_core: IotCore) -> None:
    numbers = list(dict.fromkeys(int(str(each.attributes[SEQUENCE])) for each in iot_core.events))
    assert numbers == sorted(numbers)


def is_probe(published: Published) -> bool:
    return not published.events


def every(
    nth: int, answer: Answer | int, otherwise: Answer = Answer.TAKE
) -> Callable[[Published], Answer | int]:
    return lambda published: answer if published.number % nth == 0 else otherwise


def test_what_services_publish_at_qos_0_while_the_forwarder_restarts_is_kept(
    start: Callable[..., Home], iot_core: IotCore
) -> None:
    home = start()
    home.forwarder.kill()
    client = mqtt.Client(CallbackAPIVersion.VERSION2)
    client.connect(LOOPBACK, home.broker.port)
    client.loop_start()
    topic = local_topic("health-service", "outbox")
    for number in range(500):
        client.publish(topic, event(number).json.encode(), qos=0)
    # Its acknowledgement says that the broker has read those before it.
    client.publish(topic, event(500).json.encode(), qos=1).wait_for_publish(SECONDS)
    client.disconnect()
    client.loop_stop()
    home.forwarder.start()
    # Its two processes may connect to the cloud within one second, so the quotas do not count here.
    wait_for(lambda: iot_core.has(ids(501)))


@pytest.mark.parametrize("answer", [Answer.TAKE_LATE, Answer.TAKE_TWICE, Answer.CONFUSE])
def test_unusual_acknowledgements_lose_nothing_and_repeat_nothing(
    start: Callable[..., Home], iot_core: IotCore, answer: Answer
) -> None:
    iot_core.script = every(2, answer, Answer.TAKE)
    home = start(probe_interval_s=0.5)
    put(home, 0, 200)
    arrived(home, iot_core, 200)
    assert_first_deliveries_in_order(iot_core)


@pytest.mark.parametrize("answer", [Answer.TAKE_AND_CUT, Answer.HANG_UP, Answer.GO_DEAF, Answer.IGNORE])
def test_a_line_that_fails_in_mid_stream_loses_nothing(
    start: Callable[..., Home], iot_core: IotCore, answer: Answer
) -> None:
    iot_core.script = every(9, answer)
    home = start()
    put(home, 0, 200)
    arrived(home, iot_core, 200)
    assert iot_core.connections > 1
    assert all(each.type == READING for each in iot_core.events)


@pytest.mark.parametrize(("code", "connections"), [(0x97, 1), (0x80, 2)])
def test_a_failure_that_passes_loses_nothing(
    start: Callable[..., Home], iot_core: IotCore, code: int, connections: int
) -> None:
    failed = iter([code])
    iot_core.script = lambda _: next(failed, Answer.TAKE)
    home = start(protocol="5")
    put(home, 0, 100)
    arrived(home, iot_core, 100)
    assert iot_core.connections == connections
    assert all(each.type == READING for each in iot_core.events)


@pytest.mark.parametrize(("protocol", "answer"), [("5", 0x99), ("3.1.1", Answer.HANG_UP)])
def test_poison_becomes_a_dead_letter_and_all_others_arrive(
    start: Callable[..., Home], iot_core: IotCore, protocol: str, answer: Answer | int
) -> None:
    def refuse(published: Published) -> Answer | int:
        return answer if any(each.id == "e7" for each in published.events) else Answer.TAKE

    iot_core.script = refuse
    home = start(protocol=protocol, batch_events=4, reconnect_min_s=0.05, reconnect_max_s=0.05)
    put(home, 0, 20)
    wait_for(home.drained)
    assert iot_core.has(ids(20) - {"e7"})
    letters = [each for each in iot_core.events if each.id not in ids(20)]
    assert {each.attributes["deadletterreason"] for each in letters} == {"refused_by_cloud"}
    assert len({each.id for each in letters}) == 1


def test_a_policy_that_forbids_the_topic_makes_no_dead_letters(
    start: Callable[..., Home], iot_core: IotCore
) -> None:
    iot_core.script = lambda _: 0x87
    home = start(protocol="5")
    put(home, 0, 20)
    wait_for(lambda: iot_core.connections > 2)
    assert "see that the device's policy" in home.log()
    iot_core.script = lambda _: Answer.TAKE
    arrived(home, iot_core, 20)
    assert all(each.type == READING for each in iot_core.events)


def test_a_cloud_that_refuses_the_downlink_still_gets_everything(
    start: Callable[..., Home], iot_core: IotCore
) -> None:
    iot_core.grants = 0x80
    home = start()
    put(home, 0, 10)
    arrived(home, iot_core, 10)
    assert "SUBSCRIBE refused for devices/home-1/inbox" in home.log()


def test_a_backlog_drains_within_the_quota_in_order_and_urgent_overtakes_it(
    start: Callable[..., Home], iot_core: IotCore
) -> None:
    iot_core.deaf = True
    home = start(batch_events=2)
    put(home, 0, 300)
    iot_core.deaf = False
    wait_for(lambda: len(iot_core.events) > 20)
    home.connect("voice-service").put(event(300, ALARM))
    arrived(home, iot_core, 301)
    order = [each.id for each in iot_core.events]
    assert order.index("e300") < order.index("e299")
    readings = [each for each in order if each != "e300"]
    assert list(dict.fromkeys(readings)) == [f"e{number}" for number in range(300)]


def test_a_quota_below_the_pace_that_was_set_loses_nothing(
    start: Callable[..., Home], iot_core: IotCore
) -> None:
    iot_core.quota = Quota(publishes_per_s=20)
    iot_core.deaf = True
    home = start(batch_events=1)
    put(home, 0, 30)
    iot_core.deaf = False
    wait_for(lambda: iot_core.has(ids(30)))
    wait_for(home.drained)
    assert iot_core.violations["publishes"] > 0  # it was throttled indeed
    assert iot_core.violations.keys() == {"publishes"}
    assert iot_core.received[-1].connection > 1
    assert "Traceback" not in home.log()


def test_a_black_hole_is_noticed_on_an_idle_line(start: Callable[..., Home], iot_core: IotCore) -> None:
    home = start(probe_interval_s=0.3)
    iot_core.script = lambda published: Answer.GO_DEAF if is_probe(published) else Answer.TAKE
    wait_for(lambda: iot_core.connections > 1)
    iot_core.script = lambda _: Answer.TAKE
    put(home, 0, 5)
    arrived(home, iot_core, 5)


def test_so_it_is_in_single_mode_without_a_publish(start: Callable[..., Home], iot_core: IotCore) -> None:
    home = start(mode="single", probe_interval_s=0.3)
    wait_for(lambda: iot_core.pings > 2)
    assert iot_core.connections == 1
    iot_core.answers_pings = False
    wait_for(lambda: iot_core.connections > 1)
    assert "no answer within" in home.log()
    assert not iot_core.events


def test_a_black_hole_at_the_door_is_noticed(start: Callable[..., Home], iot_core: IotCore) -> None:
    iot_core.deaf = True
    home = start()
    wait_for(lambda: iot_core.connections > 1)
    iot_core.deaf = False
    put(home, 0, 5)
    arrived(home, iot_core, 5)


@pytest.mark.source("N5")
def test_killed_with_a_full_window_it_sends_all_again(start: Callable[..., Home], iot_core: IotCore) -> None:
    iot_core.script = lambda _: Answer.IGNORE
    iot_core.quota = RESTARTS
    home = start(max_unacknowledged=10, puback_timeout_s=60.0)
    put(home, 0, 150)
    wait_for(lambda: len(iot_core.received) == 9)
    home.forwarder.kill()
    iot_core.script = lambda _: Answer.TAKE
    home.forwarder.start()
    arrived(home, iot_core, 150)
    assert_first_deliveries_in_order(iot_core)


def test_both_sides_die_and_heal(start: Callable[..., Home], iot_core: IotCore) -> None:
    iot_core.quota = RESTARTS
    home = start()
    put(home, 0, 50)
    iot_core.stop()
    put(home, 50, 150)
    home.broker.child.kill()
    home.forwarder.kill()
    iot_core.start()
    home.broker.child.start()
    home.forwarder.start()
    put(home, 150, 200)
    arrived(home, iot_core, 200)


def test_single_mode_sends_plain_events_to_a_topic_of_its_own(
    start: Callable[..., Home], iot_core: IotCore
) -> None:
    home = start(mode="single", topic="devices/{thing}/events")
    put(home, 0, 30)
    arrived(home, iot_core, 30)
    assert {each.topic for each in iot_core.accepted} == {"devices/home-1/events"}
    assert all(each.payload.startswith(b"{") for each in iot_core.accepted)
