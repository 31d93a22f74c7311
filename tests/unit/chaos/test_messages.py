"""Carers tell one home after the other, and what they say is expected in that home."""

from __future__ import annotations

import json
from queue import Queue

import pytest

from local.chaos import messages
from local.chaos.messages import Messages
from local.oracle import expected_by_service
from local.sent import SentLog
from tests.plane import shipped_contract


def test_each_message_is_noted_and_is_for_one_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "_EVERY_S", 0.0)
    contract = shipped_contract()
    sent, outbox = SentLog(contract), Queue[str]()
    with Messages(contract, ["home-1", "home-2"], outbox.put, sent):
        events = [json.loads(outbox.get(timeout=10)) for _ in range(4)]
    assert [each["todevice"] for each in events] == ["home-1", "home-2"] * 2
    keys = {(each["source"], each["id"]) for each in events}
    assert len(keys) == 4
    assert keys <= expected_by_service(contract, sent.events)["voice-service"]
