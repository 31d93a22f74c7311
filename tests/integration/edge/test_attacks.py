"""Floods and backlogs in the home's broker: alarms overtake them, memory stays bounded, SIGTERM is obeyed.

The neighbour of these tests is a service that publishes without any client of ours, as fast as it can.
"""

import re
from collections.abc import Iterable

import pytest

from eventplane.envelope import write_event
from eventplane.names import SEQUENCE
from eventplane.topics import local_topic
from lab.benchmarks.edge.parts import BenchPublisher
from lab.benchmarks.processes import peak_rss_mib, rss_mib
from tests.integration.edge.conftest import Home, RecordingCloud, wait_for
from tests.integration.mqtt import TestClient

NEIGHBOUR = local_topic("health-service", "outbox")
ALARMS = local_topic("voice-service", "outbox")
READING = "org.eventplane.health.reading.v1"
ALARM = "org.eventplane.alarm.keyword.v1"
DEAD_LETTER = "org.eventplane.deadletter.v1"

BACKLOG = 15_000
LARGE = 90 * 1024
GROWTH_MIB = 24.0
"""What a flood may add to the resident memory, beside libraries that are loaded late."""


def event(name: str, type_: str = READING, padding: int = 0) -> bytes:
    return write_event(
        {"id": name, "source": "/homes/1", "type": type_}, {"text": "x" * padding}
    ).json.encode()


def readings(count: int, padding: int = 0) -> Iterable[bytes]:
    return (event(f"r{number}", padding=padding) for number in range(count))


def names(count: int) -> set[str]:
    return {f"r{number}" for number in range(count)}


def stop(home: Home) -> None:
    home.forwarder.terminate()
    assert home.forwarder.wait() == 0


def start(home: Home) -> None:
    """Return when the forwarder has connected again."""
    before = home.logged("local broker connected")
    home.forwarder.start()
    wait_for(lambda: home.logged("local broker connected") > before)


def sequences(cloud: RecordingCloud) -> dict[str, int]:
    """The device's number of each event that arrived."""
    return {each.id: int(str(each.attributes[SEQUENCE])) for each in cloud.events}


@pytest.fixture
def known_home(home: Home, cloud: RecordingCloud) -> Home:
    """A home whose broker keeps messages for the forwarder: an alarm and a reading have gone through."""
    with BenchPublisher(home.broker.port) as publisher:
        for topic, name, type_ in ((ALARMS, "first-alarm", ALARM), (NEIGHBOUR, "first-reading", READING)):
            # The broker drops what comes before the forwarder's first subscription.
            def arrived(topic: str = topic, name: str = name, type_: str = type_) -> bool:
                publisher.send(event(name, type_), topic)
                return cloud.has({name})

            wait_for(arrived)
    return home


def test_restarts_store_a_backlog_once(known_home: Home, cloud: RecordingCloud) -> None:
    stop(known_home)
    with BenchPublisher(known_home.broker.port) as publisher:
        publisher.send_all(readings(BACKLOG), NEIGHBOUR)
        publisher.send(event("alarm", ALARM), ALARMS)
    start(known_home)
    stop(known_home)
    stopped_at = int(re.findall(r"stopped at sequence (\d+)", known_home.log())[-1])
    assert stopped_at < BACKLOG
    start(known_home)
    # Mosquitto hands on whole windows for each PUBACK that it reads, and reads few: most are lost with it.
    wait_for(lambda: known_home.metric("eventplane_stored_total") > stopped_at + BACKLOG // 4)
    known_home.broker.child.restart()
    with BenchPublisher(known_home.broker.port) as publisher:
        publisher.send(event("end"), NEIGHBOUR)
    wait_for(lambda: cloud.has(names(BACKLOG) | {"alarm", "end"}))
    stored = sequences(cloud)
    assert stored["alarm"] < stored[f"r{BACKLOG - 1}"]
    # Its own reports beside them.
    assert known_home.metric("eventplane_stored_total") < BACKLOG + 100


def test_an_alarm_passes_a_flood(known_home: Home, cloud: RecordingCloud) -> None:
    flood = 2 * BACKLOG
    with BenchPublisher(known_home.broker.port, "neighbour") as neighbour:
        neighbour.flood(readings(flood), NEIGHBOUR)
        # Its PUBACK says that the broker has taken the whole flood.
        neighbour.send(event("end"), NEIGHBOUR)
    with BenchPublisher(known_home.broker.port) as publisher:
        publisher.send(event("alarm", ALARM), ALARMS)
    wait_for(lambda: cloud.has({"alarm", "end"}))
    # Mosquitto keeps all of it for a slow reader: the forwarder dropped some, or the alarm overtook it.
    assert sequences(cloud)["alarm"] < flood


def test_a_qos_0_backlog_is_bounded(known_home: Home, cloud: RecordingCloud) -> None:
    assert known_home.forwarder.pid is not None
    idle = rss_mib(known_home.forwarder.pid)
    stop(known_home)
    count = 690  # as much as the broker's profile lets wait for one client
    with BenchPublisher(known_home.broker.port) as publisher:
        publisher.flood(readings(count, LARGE), NEIGHBOUR)
        publisher.send(event("end"), NEIGHBOUR)
    start(known_home)
    wait_for(lambda: cloud.has(names(count) | {"end"}))
    assert peak_rss_mib(known_home.forwarder.pid) - idle < GROWTH_MIB


def test_unknown_outboxes_take_no_memory(known_home: Home, cloud: RecordingCloud) -> None:
    assert known_home.forwarder.pid is not None
    idle = rss_mib(known_home.forwarder.pid)
    count = 20_000
    with BenchPublisher(known_home.broker.port) as publisher:
        for number in range(count):
            publisher.flood([event(f"s{number}")], local_topic(f"stranger-{number}", "outbox"))
        publisher.send(event("end"), NEIGHBOUR)
    wait_for(lambda: cloud.has({"end"}))
    wait_for(lambda: any(each.type == DEAD_LETTER for each in cloud.events))
    assert peak_rss_mib(known_home.forwarder.pid) - idle < GROWTH_MIB


def test_a_client_whose_message_is_oversize_loses_the_connection(home: Home) -> None:
    wait_for(lambda: home.problems() == [])
    with TestClient("health", "127.0.0.1", home.broker.port) as client:
        client._client.publish(NEIGHBOUR, b"x" * 1_100_000, qos=1)
        wait_for(client.disconnected.is_set)
    assert "oversize packet" in home.broker.child.log.read_text().lower()
    assert home.problems() == []
