"""What the readers of the cloud depend on is down for an hour, in a history of the whole plane."""

from __future__ import annotations

from itertools import cycle

import pytest

from local.histories.history import History
from local.histories.oracles import judged
from local.histories.search import shipped
from local.histories.story import DOWN_S, READERS, SENDERS, Decision, Story

pytestmark = pytest.mark.long


def test_an_hour_without_what_its_readers_depend_on_makes_no_dead_letter_and_delays_nothing_else() -> None:
    outages = [Decision(10.0, "dependency-down", each, DOWN_S) for each in READERS]
    said = [
        Decision(12.0 + at / 10, "say", "home-1", text=kind)
        for at, kind in zip(range(10), cycle(sorted(SENDERS)), strict=False)
    ]
    history = History(Story(1, 0, tuple(outages + said)), shipped()).run()
    assert judged(history) == []
    alarms = {key: times for key, times in history.handled.done.items() if key[0] == "alarm-centre"}
    assert len(alarms) > 2
    assert all(len(times) == 1 and times[0] < 10.0 + DOWN_S + 60 for times in alarms.values())
