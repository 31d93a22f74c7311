"""A channel's settings in words: none is forgotten where it is not the usual one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from contract.summary import duration, settings_text, special_text
from eventplane.contract import ParticipantKind
from eventplane.contract.channels import NUMBERS, WORDS, read_channel
from eventplane.contract.reader import Section

USUAL = read_channel("bell", ParticipantKind.DEVICE_SERVICE, Section("outbox", {}, []))
# How long a queue keeps what, and how often it is read, is no promise to who sends or receives.
OF_QUEUES = {"retention_s", "max_receives"}
UNUSUAL: list[tuple[str, Any]] = [
    *((name, each) for name, word in WORDS.items() for each in word.options if each is not word.default),
    *((name, number.high) for name, number in NUMBERS.items() if name not in OF_QUEUES),
    ("receipts", True),
]


@pytest.mark.parametrize(("setting", "value"), UNUSUAL)
def test_every_unusual_setting_is_told(setting: str, value: Any) -> None:
    channel = replace(USUAL, **{setting: value})
    assert special_text(USUAL) == ""
    assert special_text(channel)
    assert settings_text(channel) != settings_text(USUAL)


@pytest.mark.parametrize(
    ("seconds", "text"), [(86_400, "1 d"), (7_200, "2 h"), (90, "90 s"), (300, "5 min"), (90_000, "25 h")]
)
def test_durations_are_exact(seconds: int, text: str) -> None:
    assert duration(seconds) == text
