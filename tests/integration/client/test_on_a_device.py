"""The example service in a home: killed while it works, it answers each alarm exactly once."""

import os
from pathlib import Path

import pytest

from contract import load_contract
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.device_reports import DISCARDED
from eventplane_client import Client, ClientSettings, connect
from eventplane_client.connection import filter_of
from eventplane_client.errors import NotRegisteredError, RefusedError
from eventplane_client.mqtt import MqttTransport
from eventplane_client.notices import Expired, Notice, log_notice
from eventplane_client.subscription import NoSubscriptions
from lab.process import Supervisor
from tests.integration.client.test_in_the_cloud import kill_while_it_works
from tests.integration.edge.conftest import SECONDS, Home, RecordingCloud, wait_for
from tests.unit.client.worlds import event, lasting


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


@pytest.mark.source("F5")
def test_who_is_not_in_the_contract_and_what_may_not_be_sent_have_names(home: Home, tmp_path: Path) -> None:
    address = f"mqtt://127.0.0.1:{home.broker.port}"
    file = tmp_path / "deployed.json"
    file.write_bytes(load_contract().canonical)
    with pytest.raises(NotRegisteredError):
        connect(ClientSettings(address, "stranger", state="memory:", contract=str(file)))
    settings = ClientSettings(address, "voice-service", state="memory:", contract=str(file))
    with connect(settings) as voice, pytest.raises(RefusedError, match="sender_not_allowed"):
        voice.put(event(type="org.example.unknown.v1"), SECONDS)
