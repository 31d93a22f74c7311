"""The example service in a home: killed while it works, it answers each alarm exactly once."""

import os
from pathlib import Path

import pytest

from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.device_reports import DISCARDED
from eventplane_client import Client, ClientSettings
from eventplane_client.connection import filter_of
from eventplane_client.mqtt import MqttTransport
from eventplane_client.notices import Expired, Notice, log_notice
from eventplane_client.subscription import NoSubscriptions
from lab.process import Supervisor
from tests.integration.client.test_in_the_cloud import kill_while_it_works
from tests.integration.edge.conftest import SECONDS, Home, RecordingCloud, wait_for
from tests.unit.client.worlds import lasting


@pytest.mark.source("P14")
def test_it_answers_each_alarm_once(home: Home, supervisor: Supervisor, tmp_path: Path) -> None:
    database = tmp_path / "calls.db"
    voice = home.connect("voice-service")
    environment = {
        **os.environ,
        "CALLS": str(database),
        "EVENTPLANE_CLIENT_PARTICIPANT": "call-service",
        "EVENTPLANE_CLIENT_TRANSPORT": f"mqtt://127.0.0.1:{home.broker.port}",
        "EVENTPLANE_CLIENT_STATE": f"sqlite:{tmp_path / 'state.db'}",
    }
    kill_while_it_works(supervisor, environment, database, lambda event: voice.send(event, SECONDS))


@pytest.mark.source("C4")
def test_the_forwarder_counts_expired_events(home: Home, cloud: RecordingCloud, tmp_path: Path) -> None:
    notices: list[Notice] = []
    transport = MqttTransport("call-service", "127.0.0.1", home.broker.port, max_receives=5)
    settings = ClientSettings("mqtt:", "call-service", state=f"sqlite:{tmp_path / 'state.db'}")
    call = Client(
        "call-service",
        transport,
        filter_of(settings, "", log_notice),
        NoSubscriptions("a device has none"),
        on_notice=notices.append,
        has_expired=lambda event: event.id == "late",
    )
    with call, call.subscribe() as inbox:
        voice = home.connect("voice-service")
        voice.put(lasting("late", 3_600), SECONDS)
        voice.put(lasting("in-time", 3_600), SECONDS)
        assert inbox.get(SECONDS).id == "in-time"
    assert [each.id for each in notices if isinstance(each, Expired)] == ["late"]
    wait_for(home.drained)
    counted = 'eventplane_discards_total{outcome="expired",reason="expirytime"}'
    wait_for(lambda: home.metric(counted) == 1.0)
    # The report of it, by channel and reason; and no dead letter.
    wait_for(lambda: any(each.type == DISCARDED for each in cloud.events))
    (report, *_) = (each for each in cloud.events if each.type == DISCARDED)
    assert "call-service.inbox" in report.json
    assert "expirytime" in report.json
    assert not [each for each in cloud.events if each.type == DEAD_LETTER_TYPE]
