"""A card with messages for one device, which is put into another one."""

import os
import signal
from pathlib import Path

import pytest

from eventplane.batch import unpack
from eventplane.device_reports import DISCARDED
from eventplane.envelope import Envelope
from eventplane.topics import basic_ingest_topic, local_topic, urgent_rule
from tests.integration.edge.conftest import RULE, THING, Home, MakeHome, RecordingCloud, event, wait_for
from tests.integration.mqtt import TestClient

OTHER, ALARM = "home-2", "org.eventplane.alarm.keyword.v1"
OUTBOX = local_topic("voice-service", "outbox")
CONNECTS = 'eventplane_connects_total{link="local"}'


def publish(home: Home, id: int) -> None:
    """Publish an alarm for which Mosquitto's PUBACK is all that its sender knows."""
    with TestClient("service", "127.0.0.1", home.broker.port) as service:
        assert service.publish(OUTBOX, event(id, ALARM).json.encode())


def save(home: Home, database: Path) -> None:
    """Have the broker write its database, as it does each 30 s."""
    before = database.stat().st_mtime_ns if database.exists() else 0
    os.kill(home.broker.child.pid or 0, signal.SIGUSR1)
    wait_for(lambda: database.exists() and database.stat().st_mtime_ns > before)


def lossy(reports: list[Envelope]) -> set[str]:
    """Why messages were not stored, by these reports of losses."""
    losses = (each.data()["not_stored"] for each in reports if each.type == DISCARDED)
    return {each["reason"] for some in losses for each in some}


@pytest.mark.parametrize("both", [False, True], ids=["the broker alone", "both"])
def test_a_cut_brings_no_alarm_back(home: Home, cloud: RecordingCloud, tmp_path: Path, both: bool) -> None:
    publish(home, 0)
    wait_for(lambda: cloud.has({"e0"}))
    home.forwarder.kill()
    publish(home, 1)  # it waits for the first device
    save(home, tmp_path / "home" / "mosquitto.db")
    home.settings.write_text(home.settings.read_text().replace(THING, OTHER, 1))
    with TestClient("recorder", "127.0.0.1", cloud.plain_port) as recorder:
        for rule in (RULE, urgent_rule(RULE)):
            recorder.subscribe(basic_ingest_topic(rule, OTHER))

        def came() -> list[Envelope]:
            found = [each for _, payload in recorder.messages for each in unpack(payload)]
            return [each for each in found if isinstance(each, Envelope)]

        def is_sent(number: int) -> None:
            publish(home, number)
            wait_for(lambda: f"e{number}" in {each.id for each in came()})

        home.forwarder.start()
        wait_for(lambda: home.metric(CONNECTS) == 1)
        is_sent(2)
        wait_for(lambda: bool(lossy(came())))
        # That the first device's alarm is gone the broker has not written down since: it has it again.
        home.broker.child.kill()
        if both:
            home.forwarder.kill()
        home.broker.child.start()
        if both:
            home.forwarder.start()
        wait_for(lambda: home.metric(CONNECTS) == (1 if both else 2))
        is_sent(3)
        assert not {"e0", "e1"} & {each.id for each in came()}
        assert lossy(came()) == {"another_thing"}


def test_what_waited_in_mqtt_3_is_taken(make_home: MakeHome, cloud: RecordingCloud) -> None:
    home = make_home(cloud.port, local={"protocol": "3.1.1"})
    home.forwarder.kill()
    publish(home, 1)  # to a session as 0.3.0 and earlier had it
    home.settings.write_text(home.settings.read_text().replace('"3.1.1"', '"5"'))
    home.forwarder.start()
    wait_for(lambda: cloud.has({"e1"}))
