"""A home's broker, and a deployment that fails, work as the demo needs them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from local.cloud import CloudEndpoint
from local.deploy import deploy
from local.errors import DeployError
from local.mosquitto import Broker
from local.process import Supervisor
from tests.eventually import eventually
from tests.integration.mqtt import TestClient


def test_broker_drops_nothing_while_the_forwarder_is_away(mosquitto: Callable[[str], Broker]) -> None:
    broker = mosquitto("home")
    payloads = [str(number).encode() for number in range(5_000)]  # the broker's default limit is 1,000
    with TestClient("forwarder", "127.0.0.1", broker.port, persistent=True) as forwarder:
        forwarder.subscribe("outbox")
    with TestClient("service", "127.0.0.1", broker.port) as service:
        assert service.publish_all("outbox", payloads)

    with TestClient("forwarder", "127.0.0.1", broker.port, persistent=True) as forwarder:
        assert eventually(lambda: len(forwarder.messages) >= len(payloads))
        assert [payload for _topic, payload in forwarder.messages] == payloads


def test_a_failed_deployment_tells_the_step_and_the_reason(
    supervisor: Supervisor, emulator: CloudEndpoint, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text("raise SystemExit('no such environment')")
    (tmp_path / "cdk.json").write_text('{"app": "python app.py"}')

    with pytest.raises(DeployError, match="no such environment") as caught:
        deploy(supervisor, emulator, app=tmp_path)

    assert caught.value.step == "synth"
