"""A lost home: what counts as a notice."""

import pytest

from eventplane.names import NOTICE
from lab.consumers import ReceivedEvent
from lab.demo.lost_connection import LOCAL, PHASES, missing, notices

pytestmark = pytest.mark.source("P9")

LOST_MS = 1_767_225_600_000


def kept(service: str, phase: str = "opened", device: str = "home-1", after_ms: int = 0) -> ReceivedEvent:
    data = {"phase": phase, "title": "t", "check": ["c"], "since": "2026-01-01T00:00:00.000Z"}
    return ReceivedEvent(service, {"type": NOTICE, "subject": device, "data": data}, LOST_MS + after_ms)


def test_a_notice_is_late_beyond_its_time() -> None:
    waits_ms = 1_000 * LOCAL.presence.disconnected_after_s
    found = notices(
        [kept("carers", after_ms=waits_ms + 800), kept("carers", "over", after_ms=99_000)], "home-1"
    )
    assert [each.late_s for each in found] == [0.8, None]
    assert notices([kept("carers")], "home-2") == []


def test_each_service_has_to_be_told_of_begin_and_end() -> None:
    services = ["carers", "family-app"]
    all_told = [kept(service, phase) for service in services for phase in PHASES]
    assert missing(notices(all_told, "home-1"), services) == 0
    assert [missing(notices(all_told[:number], "home-1"), services) for number in range(4)] == [4, 3, 2, 1]
