"""The figure of bytes not sent: of real events, with every alarm among what is sent."""

from __future__ import annotations

from pathlib import Path

from benchmarks.interest import figures


def test_something_is_not_sent_and_every_alarm_is(shared_data: Path) -> None:
    found = {each.name: each for each in figures(shared_data, homes=6, events=600)}
    assert 0 < found["uplink_bytes_not_sent"].value < found["uplink_bytes_all"].value
    alarms = found["alarms_sent"]
    assert alarms.value == alarms.aim
    assert alarms.value > 0
    assert 0 < found["inbox_events_not_forwarded_share"].value < 100
