"""The example service in a home: killed while it works, it answers each alarm exactly once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eventplane_client import ClientSettings, Mode, connect
from local.process import Supervisor
from tests.integration.client.test_in_the_cloud import kill_while_it_works
from tests.integration.edge.conftest import SECONDS, Home, wait_for


@pytest.mark.source("P14")
def test_the_example_answers_each_alarm_exactly_once_although_it_is_killed(
    home: Home, supervisor: Supervisor, tmp_path: Path
) -> None:
    database = tmp_path / "calls.db"
    voice = home.service("voice-service")
    environment = {
        **os.environ,
        "CALLS": str(database),
        "EVENTPLANE_CLIENT_PARTICIPANT": "call-service",
        "EVENTPLANE_CLIENT_TRANSPORT": f"mqtt://127.0.0.1:{home.broker.port}",
        "EVENTPLANE_CLIENT_STATE": f"sqlite:{tmp_path / 'state.db'}",
    }
    kill_while_it_works(supervisor, environment, database, lambda event: voice.send(event, SECONDS))


def test_what_a_program_announces_the_forwarder_knows_until_it_is_withdrawn(home: Home) -> None:
    settings = ClientSettings("call-service", f"mqtt://127.0.0.1:{home.broker.port}", mode=Mode.AT_LEAST_ONCE)
    with connect(settings) as client:
        client.announce([{"exact": {"subject": "/kitchen"}}])
        wait_for(lambda: "call-service announced what it handles" in home.log())
        client.withdraw()
        wait_for(lambda: "call-service announces nothing any more" in home.log())
