"""The simulation, and the histories with the functions and the client library, agree."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from edge.spool import Delivery, Discard
from eventplane.contract import Contract, compile_contract, contract_document
from eventplane.reasons import Outcome
from lab.histories import history as histories
from lab.histories.history import DATA, History
from lab.histories.story import ALARMS, SENDERS, Story, StoryStep
from parts.simulate.cloud import CloudStage
from parts.simulate.draws import Draws
from parts.simulate.home import HomeModel
from parts.simulate.one_home import Simulation, run_home
from parts.simulate.traffic import DAY_H, TrafficFlow
from parts.simulate.weather import Happening, Weather
from tests.plane import shipped_contract

KEYWORD, MOTION = f"{ALARMS}keyword.v1", "org.eventplane.activity.motion.v1"
CLIMATE, READING = "org.eventplane.climate.reading.v1", "org.eventplane.health.reading.v1"
SAID: dict[str, list[float]] = {
    KEYWORD: [10.0, 450.0, 1_010.0, 1_100.0, 2_000.0, 3_800.0, 4_100.0],
    MOTION: [20.0, 305.0, 400.0, 560.0, 650.0, 1_300.0],
    CLIMATE: [30.0, *(310.0 + number for number in range(90)), 900.0],
    READING: [40.0, 320.0, 820.0, 1_500.0],
}
CUT, FULL, FAILS = (300.0, 400.0), (800.0, 45.0), (1_000.0, 3_000.0)
SETTINGS = {"spool_capacity_deliveries": 100, "manifest_interval_s": 300.0}


class Scripted(TrafficFlow):
    """A flow whose events are said when `SAID` says."""

    def moments(self, random: Draws, ends_s: float) -> Iterator[float]:
        return iter(SAID[self.type])


def contract() -> Contract:
    document = contract_document(shipped_contract())
    document["participants"]["activity-service"]["outbox"]["expiry_s"] = 120
    document["participants"]["alarm-centre"]["inbox"]["give_up_after_s"] = 600
    return compile_contract(document, "tried")


def told(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, ...]]:
    """What the histories say: ends on the device, handled, refused, given up."""
    found: Counter[tuple[str, ...]] = Counter()
    ended: dict[tuple[str, int], Discard] = {}
    note_ended = HomeModel.note_ended

    def noted(home: HomeModel, epoch: str, delivery: Delivery, discard: Discard | None = None) -> None:
        note_ended(home, epoch, delivery, discard)
        if discard is not None:
            ended[epoch, delivery.sequence] = discard

    monkeypatch.setattr(HomeModel, "note_ended", noted)
    monkeypatch.setattr(histories, "HOME", {**histories.HOME, **SETTINGS})
    decisions = [
        StoryStep(at_s, "say", "home-1", text=type) for type, those in SAID.items() for at_s in those
    ]
    decisions += [
        StoryStep(*CUT[:1], "cut", "home-1", CUT[1]),
        StoryStep(FULL[0], "disk-full", "home-1", FULL[1]),
    ]
    decisions.append(StoryStep(FAILS[0], "dependency-down", "alarm-centre", FAILS[1]))
    story = History(Story(1, 0, tuple(sorted(decisions))), contract()).run()
    for (source, id), (_, _, _, event) in story.said.items():
        discard = ended.get(story.homes["home-1"].numbers.get((source, id), ("", 0)))
        if discard is not None:
            found[event.type, discard.outcome, discard.reason] += 1
        for reader in ("alarm-centre", "care-analytics"):
            found[event.type, reader] += (reader, source, id) in story.handled.done
    for record in story.ledger:
        if record["type"] in SENDERS and record["outcome"] == Outcome.DEAD_LETTERED:
            found[record["type"], record["outcome"], record["reason"]] += 1
        found["given up"] += record["dead_letter_reason"] == "DependencyDownError"
    return +found


def simulated() -> Counter[tuple[str, ...]]:
    """What the simulation says of the same events in the same weather."""
    found: Counter[Any] = Counter()
    day = (1.0,) * DAY_H
    traffic = tuple(Scripted(type, SENDERS[type], day, data=DATA[type]) for type in SAID)
    happens = tuple(
        Happening(what, "the test", None, (begins_s / 3_600,), lasts_s / 60, reader=reader)
        for what, (begins_s, lasts_s), reader in (
            ("offline", CUT, ""),
            ("disk_full", FULL, ""),
            ("reader_fails", FAILS, "alarm-centre"),
        )
    )
    plan = Simulation(contract(), traffic, Weather("test", "", happens), 0.25, 1, SETTINGS)
    home = run_home(plan, 1)
    types = {f"{SENDERS[type]}.outbox": type for type in SAID}
    for (outbox, _, outcome, reason), number in home.ended.items():
        if outbox in types:
            found[types[outbox], outcome, reason] += number
    cloud = CloudStage(plan, [home]).run()
    for (outbox, outcome, reason), number in cloud.refused.items():
        if outbox in types:
            found[types[outbox], outcome, reason] += number
    centre, analytics = cloud.inboxes["alarm-centre.inbox"], cloud.inboxes["care-analytics.inbox"]
    found[KEYWORD, "alarm-centre"] = len(centre.latencies)
    found["given up"] = centre.ended[Outcome.DEAD_LETTERED, "given_up"]
    found["analytics"] = len(analytics.latencies)
    return +found


@pytest.mark.long
def test_simulation_agrees_with_histories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DATA, READING, {"quantity": "heart-rate", "value": "many"})
    full, fast = told(monkeypatch), simulated()
    full["analytics"] = sum(full.pop((type, "care-analytics"), 0) for type in SAID)
    assert fast == full
    assert {MOTION, CLIMATE, READING, "given up"} <= {
        each if isinstance(each, str) else each[0] for each in full
    }
