"""The contract suite of the client library over MQTT, in one home for all its tests."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.envelope import Envelope
from eventplane.topics import local_topic
from eventplane_client import Client, Mode
from eventplane_client.errors import RefusedError
from eventplane_client.mqtt import MqttTransport
from eventplane_client.sqlite_duplicates import SqliteFilter
from eventplane_client.subscription import NoSubscriptions
from lab.mosquitto import start_mosquitto
from lab.process import Supervisor
from lab.things import Authority
from tests.eventually import eventually
from tests.integration.edge.conftest import Home, RecordingCloud, start_home
from tests.integration.mqtt import TestClient
from tests.unit.client.test_contract_suite import *  # noqa: F403
from tests.unit.client.worlds import MAX_RECEIVES, Steps, event, sent_by

pytestmark = pytest.mark.source("N1")

SECONDS = 30


class MqttWorld:
    """The call service of a home reads, the voice service sends."""

    reader = "call-service"
    sender = "voice-service"
    idle_s = 3.0

    def __init__(self, home: Home, cloud: RecordingCloud, directory: Path) -> None:
        self._home = home
        self._cloud = cloud
        self._directory = directory
        self._transports: list[MqttTransport] = []
        self._filters: list[SqliteFilter] = []
        self._events_before = len(cloud.events)
        with self.client(self.reader) as first:
            # From its first connection on the broker keeps what comes for it.
            first.put(event(type="org.eventplane.call.placed.v1"), SECONDS)

    def client(self, participant: str, *, steps: Steps | None = None, **options: Any) -> Client:
        transport = MqttTransport(
            participant, "127.0.0.1", self._home.broker.port, max_receives=MAX_RECEIVES, receipt_timeout_s=1
        )
        self._transports.append(transport)
        return Client(
            participant,
            transport,
            lambda: self._filter(participant),
            NoSubscriptions("a device has none"),
            has_expired=transport.has_expired,
            **options,
        )

    def crash(self) -> None:
        for each in self._transports:
            each.close()  # what is not confirmed by now never is
        for each in self._filters:
            each.close()
        self._transports.clear()
        self._filters.clear()

    def hurry(self) -> None:
        for transport in self._transports:
            with transport._changed:
                for held in transport._held.values():
                    held.visible_at = 0.0
                transport._changed.notify_all()

    def deliver(self, body: Envelope | bytes) -> None:
        with TestClient("duplicate", "127.0.0.1", self._home.broker.port) as publisher:
            assert publisher.publish(local_topic(self.reader, "inbox"), sent_by(self.sender, body))

    def pending(self) -> int:
        return 0 if eventually(self._home.drained, SECONDS) else 1

    def taken_away(self) -> int:
        return 0

    def letters(self, least: int = 0) -> list[Envelope]:
        def found() -> list[Envelope]:
            new = self._cloud.events[self._events_before :]
            return list({each.key: each for each in new if each.type == DEAD_LETTER_TYPE}.values())

        assert eventually(lambda: len(found()) >= least, SECONDS)
        return found()

    def close(self) -> None:
        """Leave nothing to the next test."""
        self.crash()
        with self.client(self.reader, mode=Mode.AT_MOST_ONCE) as last, last.subscribe() as inbox:
            came: set[str] = set()
            # The broker keeps the order: what it redelivers of an ended session comes before this.
            marker = event()
            self.deliver(marker)

            def is_empty() -> bool:
                inbox.handle(lambda each: came.add(each.id), idle_s=0)
                return marker.id in came and self._home.drained()

            assert eventually(is_empty, SECONDS)
        self.crash()

    def _filter(self, participant: str) -> SqliteFilter:
        found = SqliteFilter(self._directory / f"{participant}.db", on_notice=lambda _: None)
        self._filters.append(found)
        return found


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def cloud(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordingCloud]:
    folder = tmp_path_factory.mktemp("cloud-of-home")
    with Supervisor(folder / "run") as supervisor:
        broker = RecordingCloud(supervisor, folder / "cloud", authority)
        yield broker
        broker.close()


@pytest.fixture(scope="module")
def home(
    authority: Authority, cloud: RecordingCloud, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Home]:
    folder = tmp_path_factory.mktemp("home")
    with Supervisor(folder / "run") as supervisor:
        broker = start_mosquitto(supervisor, "home", folder / "mosquitto")
        it = start_home(supervisor, broker, folder, cloud.port, authority)
        yield it
        it.close()


@pytest.fixture
def world(home: Home, cloud: RecordingCloud, tmp_path: Path) -> Iterator[MqttWorld]:
    it = MqttWorld(home, cloud, tmp_path)
    yield it
    it.close()


def test_who_sends_on_what_it_received_is_its_sender(world: MqttWorld) -> None:
    with (
        world.client(world.sender) as sender,
        world.client(world.reader) as client,
        client.subscribe() as inbox,
    ):
        sender.put(event())
        got = inbox.get(SECONDS)
        assert str(got.sender) == world.sender
        # As its own event: the contract gives it no alarms.
        with pytest.raises(RefusedError, match="sender_not_allowed"):
            client.put(got)
