"""The canary's function as Lambda calls it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eventplane.function_settings import CanarySettings
from eventplane.settings import SettingsError
from lambdas.canary import handler
from tests.unit.lambdas.canary.conftest import PREFIX, Gateway
from tests.unit.lambdas.support import LambdaContext, figures


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, inbox: str) -> None:
    settings = CanarySettings(ingest_topic="topic", inbox_queue=inbox, queue_prefix=PREFIX)
    for name, value in {
        **settings.variables(),
        "AWS_REGION": "us-east-1",
        "POWERTOOLS_SERVICE_NAME": "f",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(handler, "services", handler.wire)


class Context(LambdaContext):
    """One whose time is nearly up."""

    def get_remaining_time_in_millis(self) -> int:
        return 0


def test_it_looks_at_the_queues(capsys: pytest.CaptureFixture[str]) -> None:
    assert handler.handle({"do": "queues"}, Context()) == {"dead_letters": {}, "backlog_s": {}}
    assert figures(capsys.readouterr().out)["DeadLetters"] == 0


def test_it_publishes_under_its_client_id(monkeypatch: pytest.MonkeyPatch, gateway: Gateway) -> None:
    host, port = gateway.address
    monkeypatch.setenv("AWS_ENDPOINT_URL_IOT_DATA_PLANE", f"http://{host}:{port}")
    answer: dict[str, Any] = handler.handle({"do": "alarm"}, Context())
    assert (answer["problem"], answer["delay_ms"]) == (None, None)
    assert b"+canary" in gateway.packets[0]
    assert json.loads(gateway.packets[1].split(b"\x00\x01", 1)[1])["id"] == answer["id"]


def test_settings_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVENTPLANE_QUEUE_PREFIX")
    with pytest.raises(SettingsError, match="EVENTPLANE_QUEUE_PREFIX"):
        handler.wire()
