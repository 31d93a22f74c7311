"""The simulation's inputs, and that it agrees with the histories."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.spool import Delivery, Discard
from eventplane.contract import Contract, compile_contract, contract_document
from eventplane.errors import EventPlaneError
from eventplane.reasons import Outcome
from lab.histories import history as histories
from lab.histories.history import DATA, History
from lab.histories.story import ALARMS, SENDERS, Story, StoryStep
from parts.simulate.cloud import CloudStage
from parts.simulate.errors import SimulationInputError
from parts.simulate.home import HomeModel
from parts.simulate.one_home import Simulation, run_home
from parts.simulate.timeline import Draws, draws
from parts.simulate.toml_table import MOST_BYTES
from parts.simulate.traffic import DAY_H, TrafficFlow, learnt, read_traffic, traffic_text
from parts.simulate.weather import KINDS, Happening, Weather, installed, merged, read_weather
from tests.plane import shipped_contract
from tests.unit.contract.small import RING, small

MOTION = "org.eventplane.activity.motion.v1"
CONTRACT = shipped_contract()
HAPPENS = 'what = "offline"\nsource = "assumed"\nevery_h = 5\nminutes = 3'


def traffic(path: Path, text: str) -> tuple[TrafficFlow, ...]:
    file = path / "traffic.toml"
    file.write_text(text)
    return read_traffic(file, CONTRACT)


def weather(path: Path, happens: str, description: str = "a test") -> tuple[Happening, ...]:
    file = path / "weather.toml"
    file.write_text(f'description = "{description}"\n[[happens]]\n{happens}')
    return read_weather(str(file), CONTRACT).happens


def test_traffic_has_a_rate_for_each_hour(tmp_path: Path) -> None:
    rates = [0.0] * 23 + [60.0]
    (flow,) = traffic(tmp_path, f'[types."{MOTION}"]\nper_hour = {rates}\nbytes = 50')
    assert (flow.sender, flow.per_day, flow.bytes) == ("activity-service", 60.0, 50)
    moments = list(flow.moments(draws(1), 10 * 86_400.0))
    assert {int(each / 3_600) % 24 for each in moments} == {23}
    assert 480 < len(moments) < 720
    assert moments == list(flow.moments(draws(1), 10 * 86_400.0)) != list(flow.moments(draws(2), 864_000.0))


def test_data_and_attributes_are_sent(tmp_path: Path) -> None:
    table = (
        f'[types."{MOTION}"]\nper_hour = 1\ndata = {{state = "moved"}}\nattributes = {{subject = "/hall"}}'
    )
    event = traffic(tmp_path, table)[0].event("home-1", 7)
    assert (event.id, event.attributes["subject"], '"state":"moved"' in event.json) == ("e7", "/hall", True)


def test_who_declares_nothing_may_send(tmp_path: Path) -> None:
    file = tmp_path / "traffic.toml"
    file.write_text(f'[types."{RING}"]\nper_hour = 1')
    assert [each.sender for each in read_traffic(file, small())] == ["bell"]


WRONG_TRAFFIC = {
    "[types": ("the file", "no TOML"),
    "x = 1": ("x", "unknown"),
    "types = 3": ("types", "not a mapping"),
    '[types."org.example.none.v1"]\nper_hour = 1': ("org.example.none.v1", "no such type"),
    '[types."org.eventplane.home.message.v1"]\nper_hour = 1': ("home.message", "no service of a device"),
    '[types."org.eventplane.device.heartbeat.v1"]\nper_hour = 1': ("heartbeat", "no service of a device"),
    f'[types."{MOTION}"]': ("per_hour", "missing"),
    f'[types."{MOTION}"]\nper_hour = [1, 2]': ("per_hour", "2 numbers"),
    f'[types."{MOTION}"]\nper_hour = -1': ("per_hour", "-1 is no number"),
    f'[types."{MOTION}"]\nper_hour = nan': ("per_hour", "nan is no number"),
    f'[types."{MOTION}"]\nper_hour = inf': ("per_hour", "inf is no number"),
    f'[types."{MOTION}"]\nper_hour = true': ("per_hour", "True is no number"),
    f'[types."{MOTION}"]\nper_hour = "many"': ("per_hour", "'many' is no number"),
    f'[types."{MOTION}"]\nper_hour = 1\nbytes = 1e9': ("bytes", "no number"),
    f'[types."{MOTION}"]\nper_hour = 1\nbytes = 97280': (MOTION, "97"),
    f'[types."{MOTION}"]\nper_hour = 1\nsender = "carers"': ("sender", "no service 'carers'"),
    f'[types."{MOTION}"]\nper_hour = 1\nsender = 3': ("sender", "not a text"),
    f'[types."{MOTION}"]\nper_hour = 1\nattributes = 3': (MOTION, "no event"),
    f'[types."{MOTION}"]\nper_hour = 1\nattributes = {{Time = "x"}}': (MOTION, "no event"),
    f'[types."{MOTION}"]\nper_hour = 1\nrate = 2': ("rate", "unknown"),
    "#" * (MOST_BYTES + 1): ("the file", "larger"),
}


@pytest.mark.parametrize("text", WRONG_TRAFFIC, ids=lambda each: each[:60])
def test_wrong_traffic_is_refused(tmp_path: Path, text: str) -> None:
    place, problem = WRONG_TRAFFIC[text]
    with pytest.raises(SimulationInputError) as raised:
        traffic(tmp_path, text)
    assert str(tmp_path / "traffic.toml") in str(raised.value)
    assert place in raised.value.place
    assert problem in raised.value.problem
    assert raised.value.remedy


WRONG_WEATHER = {
    'what = "hail"\nsource = "x"\nat_h = [1]\nminutes = 1': ("happens[0].what", "'hail' is not known"),
    'source = "x"': ("what", "not a text"),
    'what = "offline"\nat_h = [1]\nminutes = 1': ("source", "not a text"),
    'what = "offline"\nsource = " "\nat_h = [1]\nminutes = 1': ("source", "not a text"),
    'what = "offline"\nsource = "x"\nminutes = 1': ("every_h", "one of them only"),
    f"{HAPPENS}\nat_h = [1]": ("every_h", "one of them only"),
    'what = "offline"\nsource = "x"\nat_h = [-1]\nminutes = 1': ("at_h", "-1 is no number"),
    'what = "offline"\nsource = "x"\nat_h = 1\nminutes = 1': ("at_h", "no list"),
    'what = "offline"\nsource = "x"\nevery_h = 0\nminutes = 1': ("every_h", "0 is no number"),
    'what = "offline"\nsource = "x"\nat_h = [1]': ("minutes", "missing"),
    'what = "offline"\nsource = "x"\nat_h = [1]\nminutes = nan': ("minutes", "nan is no number"),
    f"{HAPPENS}\nhomes_percent = 101": ("homes_percent", "101 is no number"),
    f"{HAPPENS}\nreader = 'carers'": ("reader", "unknown"),
    'what = "region_down"\nsource = "x"\nat_h = [1]\nminutes = 1\nhomes_percent = 5': (
        "homes_percent",
        "cloud",
    ),
    'what = "reader_fails"\nsource = "x"\nat_h = [1]\nminutes = 1\nreader = "nobody"': ("reader", "no cloud"),
    'what = "flood"\nsource = "x"\nat_h = [1]\nminutes = 1\nevents_per_minute = 9\ntype = "a.b"': (
        "type",
        "no 'a.b'",
    ),
    'what = "slow"\nsource = "x"\nat_h = [1]\nminutes = 1\nbytes_per_s = 0': ("bytes_per_s", "no number"),
}


@pytest.mark.parametrize("text", WRONG_WEATHER, ids=lambda each: each[:60])
def test_wrong_weather_is_refused(tmp_path: Path, text: str) -> None:
    place, problem = WRONG_WEATHER[text]
    with pytest.raises(SimulationInputError) as raised:
        weather(tmp_path, text)
    assert place in raised.value.place
    assert problem in raised.value.problem


def test_a_weather_that_is_nowhere_names_the_others() -> None:
    with pytest.raises(EventPlaneError, match="calm, region, rural-line, storm"):
        read_weather("hail", CONTRACT)


@pytest.mark.parametrize("name", ["blackout", "calm", "region", "rural-line", "storm"])
def test_installed_weathers_say_their_sources(name: str) -> None:
    assert name in installed()
    found = read_weather(name, CONTRACT)
    assert all(each.source.startswith("assumed") or "https://" in each.source for each in found.happens)
    assert {each.what for each in found.happens} <= KINDS.keys()


def test_windows_are_drawn_for_each_home(tmp_path: Path) -> None:
    (often,) = weather(tmp_path, HAPPENS)
    drawn = often.windows(1, 0, "home-1", 864_000.0)
    assert drawn == often.windows(1, 0, "home-1", 864_000.0)
    assert drawn != often.windows(1, 0, "home-2", 864_000.0)
    assert drawn != often.windows(2, 0, "home-1", 864_000.0)
    assert 30 < len(drawn) < 66
    assert 60 < sum(until - since for since, until in drawn) / len(drawn) < 300


def test_a_share_of_homes_is_met(tmp_path: Path) -> None:
    text = 'what = "no_power"\nsource = "x"\nat_h = [2]\nminutes = 30\nhomes_percent = 40'
    (night,) = weather(tmp_path, text)
    met = [night.windows(1, 0, f"home-{number}", 86_400.0) for number in range(100)]
    assert 30 < sum(map(bool, met)) < 50
    assert {tuple(each) for each in met} == {(), ((7_200.0, 9_000.0),)}


def test_a_weather_may_never_end(tmp_path: Path) -> None:
    (ever,) = weather(tmp_path, 'what = "offline"\nsource = "x"\nevery_h = 1\nminutes = inf')
    ((since, until),) = ever.windows(1, 0, "home-1", 86_400.0)
    assert (until, 0 < since < 86_400) == (inf, True)


WINDOWS = st.lists(
    st.tuples(st.floats(0, 50), st.floats(0, 50)).map(lambda each: (each[0], each[0] + each[1]))
)


@given(WINDOWS, st.floats(0, 100))
def test_merged_windows_cover_the_same(windows: list[tuple[float, float]], at_s: float) -> None:
    found = merged(windows, 100.0)
    assert any(since <= at_s < until for since, until in windows) == any(
        since <= at_s < until for since, until in found
    )
    assert all(before[1] < after[0] for before, after in pairwise(found))


def record(thing: str, hour: int, type: str = MOTION, service: str = "activity-service", **more: Any) -> Any:
    event = TrafficFlow(type, service, (), 80).event(thing, 1).with_attributes({"senderservice": service})
    return {"client_id": thing, "accepted_at_ms": 3_600_000 * hour, "event": event.json, **more}


def test_traffic_is_learnt_from_an_archive(tmp_path: Path) -> None:
    records = [record("home-1", 3), record("home-1", 3), record("home-2", 5), record("home-3", 5, event=None)]
    records.append(record("home-1", 4, "org.eventplane.device.heartbeat.v1", ""))
    (flow,), homes = learnt(records)
    assert (flow.type, flow.sender, homes) == (MOTION, "activity-service", 3)
    assert {hour: rate for hour, rate in enumerate(flow.per_hour) if rate} == {3: 0.6667, 5: 0.3333}
    (again,) = traffic(tmp_path, traffic_text([flow], "Learnt."))
    assert again == flow
    assert abs(again.bytes - 80) < 60


KEYWORD, MOTION_MODEL = f"{ALARMS}keyword.v1", "org.eventplane.activity.motion.v1"
CLIMATE, READING = "org.eventplane.climate.reading.v1", "org.eventplane.health.reading.v1"
SAID: dict[str, list[float]] = {
    KEYWORD: [10.0, 450.0, 1_010.0, 1_100.0, 2_000.0, 3_800.0, 4_100.0],
    MOTION_MODEL: [20.0, 305.0, 400.0, 560.0, 650.0, 1_300.0],
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
    assert {MOTION_MODEL, CLIMATE, READING, "given up"} <= {
        each if isinstance(each, str) else each[0] for each in full
    }
