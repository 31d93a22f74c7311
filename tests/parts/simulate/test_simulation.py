"""Homes and cloud under each kind of weather, and the command with its page."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from math import inf
from pathlib import Path
from typing import Any

import pytest

from eventplane.contract import Contract, compile_contract, contract_document
from parts.simulate.cloud import CloudStage
from parts.simulate.errors import SimulationError, TooManyEventsError
from parts.simulate.one_home import HomeRecord, Simulation, run_home
from parts.simulate.report import document
from parts.simulate.run import run_homes
from parts.simulate.timeline import Draws
from parts.simulate.traffic import DAY_H, HOUR_S, TrafficFlow
from parts.simulate.weather import Happening, Weather
from tests.plane import shipped_contract
from tests.unit.operations.support import Run, RunJson

KEYWORD, MOTION = "org.eventplane.alarm.keyword.v1", "org.eventplane.activity.motion.v1"
SHIPPED = shipped_contract()
DAY = (1.0,) * DAY_H


class At(TrafficFlow):
    """A flow whose events are said at the moments in `data`, in seconds."""

    def moments(self, random: Draws, ends_s: float) -> Iterator[float]:
        return iter(self.attributes["moments"])  # type: ignore[arg-type]

    def event(self, thing: str, number: int) -> Any:
        return TrafficFlow(self.type, self.sender, DAY).event(thing, number)


def alarms(*moments: float) -> TrafficFlow:
    return At(KEYWORD, "voice-service", DAY, attributes={"moments": moments})  # type: ignore[dict-item]


def moves(*moments: float) -> TrafficFlow:
    return At(MOTION, "activity-service", DAY, attributes={"moments": moments})  # type: ignore[dict-item]


def happening(what: str, begins_s: float, lasts_s: float, **more: Any) -> Happening:
    return Happening(what, "the test", None, (begins_s / HOUR_S,), lasts_s / 60, **more)


def plan(
    *happens: Happening,
    traffic: tuple[TrafficFlow, ...] = (alarms(100.0, 700.0), moves(110.0, 710.0)),
    hours: float = 1.0,
    contract: Contract = SHIPPED,
    settings: Mapping[str, Any] | None = None,
) -> Simulation:
    return Simulation(contract, traffic, Weather("test", "A test.", happens), hours / 24, 1, settings or {})


def tried(of: Simulation) -> tuple[HomeRecord, dict[str, Any]]:
    home = run_home(of, 1)
    return home, document(of, [home], CloudStage(of, [home]).run())


def row(found: Mapping[str, Any], channel: str) -> Any:
    return next(each for each in (*found["outboxes"], *found["inboxes"]) if each["channel"] == channel)


def changed(**channels: Mapping[str, Any]) -> Contract:
    contract = contract_document(SHIPPED)
    for name, settings in channels.items():
        participant, box = name.split("__")
        contract["participants"][participant.replace("_", "-")][box].update(settings)
    return compile_contract(contract, "tried")


def test_in_calm_weather_all_arrives_soon() -> None:
    home, found = tried(plan())
    centre = row(found, "alarm-centre.inbox")
    assert (centre["due"], centre["handled"], centre["ended_unread"]) == (2, 2, [])
    assert 0.1 < centre["p50_s"] <= centre["most_s"] < 1
    assert row(found, "call-service.inbox")["handled"] == 2
    assert row(found, "activity-service.outbox")["sent"] == 2
    assert found["alarms"]["said"] == 2
    assert found["alarms"]["lost"] == found["devices"]["copies"] == 0
    assert home.lost.total() == 0


@pytest.mark.parametrize("what", ["offline", "silent", "region_down"])
def test_a_backlog_waits_for_the_line(what: str) -> None:
    _, found = tried(plan(happening(what, 600.0, 900.0)))
    centre = row(found, "alarm-centre.inbox")
    assert (centre["handled"], 700 < centre["most_s"] < 1_000) == (2, True)
    assert row(found, "voice-service.outbox")["backlog"] == 1
    assert found["way"]["latency_s"] == centre["most_s"]
    assert {each["lane"] for each in found["way"]["notes"]} >= {"weather", "service", "IoT Core", "reader"}
    assert row(found, "call-service.inbox")["most_s"] < 1, "what stays in the home needs no line"


def test_a_slow_line_takes_its_time() -> None:
    _, found = tried(plan(happening("slow", 0.0, inf, bytes_per_s=200.0, delay_s=2.0)))
    assert 3 < row(found, "alarm-centre.inbox")["p50_s"] < 20


def test_without_power_nothing_is_said() -> None:
    home, found = tried(plan(happening("no_power", 600.0, 900.0)))
    assert (found["devices"]["said"], found["devices"]["unsaid"], home.unsaid) == (2, 2, 2)
    assert row(found, "alarm-centre.inbox")["handled"] == 1


def test_a_power_cut_loses_nothing_stored() -> None:
    weather = happening("offline", 600.0, 900.0), happening("no_power", 800.0, 300.0)
    _, found = tried(plan(*weather))
    assert row(found, "alarm-centre.inbox")["handled"] == 2
    assert found["alarms"]["lost"] == 0


def test_a_crash_loses_nothing() -> None:
    _, found = tried(plan(*(happening("crash", each, 0.0) for each in (100.001, 700.002, 700.1))))
    assert [row(found, each)["handled"] for each in ("alarm-centre.inbox", "care-analytics.inbox")] == [2, 2]


def test_a_full_disk_sends_alarms_from_memory() -> None:
    home, found = tried(plan(happening("disk_full", 600.0, inf)))
    assert row(found, "alarm-centre.inbox")["handled"] == 2
    assert home.lost["activity-service.outbox"] == 1, "it does not ask for a receipt"
    assert found["alarms"]["lost"] == 0


def test_a_flood_evicts_the_oldest() -> None:
    weather = (
        happening("offline", 0.0, inf),
        happening("flood", 100.0, 60.0, events_per_minute=200.0, type=MOTION),
    )
    contract = changed(activity_service__outbox={"when_full": "drop_oldest"})
    _, found = tried(plan(*weather, contract=contract, settings={"spool_capacity_deliveries": 100}))
    outbox = row(found, "activity-service.outbox")
    assert outbox["said"] >= 200
    (ended,) = outbox["ended"]
    assert (ended["outcome"], ended["reason"]) == ("dropped", "spool_full")
    assert ended["number"] + outbox["waiting"] + outbox["lost"] == outbox["said"]


def test_what_expires_on_the_device_is_told() -> None:
    contract = changed(activity_service__outbox={"expiry_s": 60})
    _, found = tried(plan(happening("offline", 600.0, 900.0), contract=contract))
    outbox = row(found, "activity-service.outbox")
    assert [(each["outcome"], each["reason"], each["number"]) for each in outbox["ended"]] == [
        ("expired", "channel_expiry", 1)
    ]


def test_a_weather_without_an_end_leaves_it_waiting() -> None:
    _, found = tried(plan(happening("offline", 0.0, inf)))
    assert row(found, "voice-service.outbox")["waiting"] == 2
    assert (found["alarms"]["lost"], found["way"], found["usd"]["connections"]) == (0, None, 0)
    assert [each["channel"] for each in found["inboxes"]] == ["call-service.inbox"]


def test_a_reader_that_fails_tries_again() -> None:
    _, found = tried(plan(happening("reader_fails", 600.0, 900.0, reader="alarm-centre")))
    assert 800 < row(found, "alarm-centre.inbox")["most_s"] < 900
    assert row(found, "family-app.inbox")["most_s"] < 20, "another reader"


def test_a_reader_gives_up_in_time() -> None:
    contract = changed(alarm_centre__inbox={"give_up_after_s": 300})
    _, found = tried(plan(happening("reader_fails", 600.0, 900.0, reader="alarm-centre"), contract=contract))
    (ended,) = row(found, "alarm-centre.inbox")["ended_unread"]
    assert (ended["outcome"], ended["reason"], ended["number"]) == ("dead_lettered", "given_up", 1)
    assert (found["alarms"]["lost"], found["way"]["latency_s"]) == (1, None)
    assert found["way"]["notes"][-1]["at_s"] - 700 == pytest.approx(300, abs=5)


def test_what_nobody_reads_is_deleted() -> None:
    contract = changed(family_app__inbox={"retention_s": 600})
    _, found = tried(plan(happening("reader_stops", 600.0, inf, reader="family-app"), contract=contract))
    inbox = row(found, "family-app.inbox")
    assert [(each["outcome"], each["number"]) for each in inbox["ended_unread"]] == [("deleted", 2)]
    assert (inbox["handled"], inbox["unread"]) == (2, 0)


def test_the_end_leaves_events_unread() -> None:
    _, found = tried(plan(happening("reader_stops", 600.0, inf, reader="alarm-centre")))
    centre = row(found, "alarm-centre.inbox")
    assert (centre["handled"], centre["unread"], found["alarms"]["lost"]) == (1, 1, 0)


def test_an_ordered_inbox_waits_for_the_first() -> None:
    contract = changed(alarm_centre__inbox={"ordering": "source", "give_up_after_s": 300})
    weather = happening("reader_fails", 600.0, 120.0, reader="alarm-centre")
    of = plan(weather, traffic=(alarms(700.0, 715.0, 721.0),), contract=contract)
    home = run_home(of, 1)
    cloud = CloudStage(of, [home]).run()
    took = list(cloud.inboxes["alarm-centre.inbox"].latencies)
    handled = [said_s + took_s for said_s, took_s in zip((700.0, 715.0, 721.0), took, strict=True)]
    assert handled == sorted(handled)
    assert 720 < handled[0] < handled[2] < 800


def test_what_the_contract_refuses_is_told() -> None:
    contract = contract_document(SHIPPED)
    contract["participants"]["activity-service"]["sends"] = []
    _, found = tried(plan(contract=compile_contract(contract, "tried")))
    (ended,) = row(found, "activity-service.outbox")["ended"]
    assert (ended["outcome"], ended["reason"], ended["number"]) == ("dead_lettered", "sender_not_allowed", 2)
    assert row(found, "activity-service.outbox")["lost"] == 0


@pytest.mark.parametrize(("gone", "lost"), [("in the cloud", 0), ("everywhere", 2)])
def test_an_alarm_without_a_route_is_lost(gone: str, lost: int) -> None:
    contract = contract_document(SHIPPED)
    for name in ("alarms-to-alarm-centre", "daily-life-to-family"):
        contract["routes"][name]["filter"] = {"exact": {"type": "org.example.other"}}
    if gone == "everywhere":
        del contract["routes"]["alarms-to-call-service"]
    _, found = tried(plan(contract=compile_contract(contract, "tried")))
    assert found["alarms"]["lost"] == lost
    assert row(found, "voice-service.outbox")["ended"][0]["reason"] == "no_route"


def test_a_wrong_payload_is_told() -> None:
    reading = "org.eventplane.health.reading.v1"
    flow = TrafficFlow(reading, "health-service", (60.0,) * DAY_H, data={"value": "many"})
    _, found = tried(plan(traffic=(flow,)))
    assert {each["reason"] for each in row(found, "health-service.outbox")["ended"]} == {"payload_invalid"}


def test_a_plane_without_traffic_has_its_own_reports() -> None:
    _, found = tried(plan(traffic=()))
    assert [each["channel"] for each in found["outboxes"]] == ["device.outbox"]
    assert found["alarms"] == {"said": 0, "lost": 0, "inboxes": []}


def test_too_much_is_refused() -> None:
    with pytest.raises(TooManyEventsError, match="fewer --homes"):
        run_homes(
            plan(traffic=(TrafficFlow(MOTION, "activity-service", (1e5,) * DAY_H),), hours=240), 1_000, 1
        )


def test_floods_count() -> None:
    flood = happening("flood", 0.0, inf, events_per_minute=6_000.0)
    with pytest.raises(TooManyEventsError, match=r"some 86,4\d\d,\d\d\d events"):
        run_homes(plan(flood, hours=24), 10, 1)


def test_a_process_that_ends_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parts.simulate.run._run", _end)
    with pytest.raises(SimulationError, match="--jobs 1"):
        run_homes(plan(), 2, 2)


def _end(number: int) -> None:
    raise SystemExit(number) if number < 0 else _killed()


def _killed() -> BaseException:
    import os

    os._exit(1)


# The command.

TRAFFIC = f"""
[types."{KEYWORD}"]
per_hour = 6
[types."{MOTION}"]
per_hour = 60
"""


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """The words of a short simulation, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "traffic.toml").write_text(TRAFFIC)
    words = "contract", "simulate", "--traffic", "traffic.toml", "--homes", "2", "--days", "0.05"
    return *words, "--jobs", "1"


def test_the_same_seed_gives_the_same_bytes(run: Run, typed: tuple[str, ...]) -> None:
    status, first, told = run(*typed)
    page = Path("build/simulation.html").read_bytes()
    assert (status, "100 % simulated" in told) == (0, True)
    assert run(*typed, "--jobs", "2")[1] == first
    assert Path("build/simulation.html").read_bytes() == page
    other = run(*typed, "--seed", "2", "--output", "other.html")[1]
    assert other.replace("other.html", "build/simulation.html").replace("seed 2", "seed 1") != first


def test_each_figure_says_what_it_rests_on(run: Run, run_json: RunJson, typed: tuple[str, ...]) -> None:
    found = run_json(*typed)
    words = set(found["meanings"])
    assert words == {"measured", "modelled", "assumed"}
    assert {each["basis"] for each in (*found["basis"].values(), *found["assumptions"])} == words
    for each in (*found["outboxes"], *found["inboxes"]):
        assert each.keys() - {"channel", "where", "curve", "shares"} <= found["basis"].keys()
    for line in run(*typed)[1].splitlines():
        if line.startswith(("OUTBOXES", "INBOXES")):
            assert all(
                re.search(r"\((measured|modelled|assumed)\)$", each) for each in re.split("  +", line)[1:]
            )


def test_the_page_draws_one_alarm(run: Run, typed: tuple[str, ...]) -> None:
    run(*typed, "--weather", "region")
    page = Path("build/simulation.html").read_text()
    assert "The way of one alarm" in page
    assert page.count("<svg") >= 5
    assert "<script" not in page
    assert "http://" not in page
    assert Counter(re.findall("<(/?)section", page)) == Counter(
        {"": page.count("</section"), "/": page.count("</section")}
    )


def test_a_lost_alarm_is_a_failure(run: Run, typed: tuple[str, ...], tmp_path: Path) -> None:
    weather = (
        "description = 'x'\n[[happens]]\nwhat = 'reader_stops'\nreader = 'alarm-centre'\nsource = 'assumed'\n"
    )
    (tmp_path / "deaf.toml").write_text(f"{weather}at_h = [0]\nminutes = 60")
    contract = tmp_path / "contract.json"
    contract.write_bytes(changed(alarm_centre__inbox={"retention_s": 120}).canonical)
    status, out, _ = run(*typed[:2], str(contract), *typed[2:], "--weather", "deaf.toml")
    assert (status, "deleted (retention_s)" in out) == (1, True)


WRONG_WORDS = {
    ("--homes", "0"): (2, "whole number above 0"),
    ("--days", "0"): (2, "number above 0"),
    ("--days", "1e9"): (2, "simulate up to 366"),
    ("--homes", "10001"): (2, "simulate up to 10000"),
    ("--spool", "5"): (2, "give 4194304"),
    ("--seed", "x"): (2, "--seed"),
    ("--weather", "hail"): (2, "'hail'"),
    ("--weather", "gone.toml"): (2, "gone.toml"),
    ("--traffic", "gone.toml"): (2, "gone.toml"),
    ("--output", "/dev/null/page.html"): (2, "/dev/null"),
    ("--show", "hail"): (2, "'hail'"),
    ("--learn", "archive"): (2, "--date DAY"),
    ("--learn", "gone", "--date", "2026-03-01"): (2, "no archive at gone"),
    ("--learn", ".", "--date", "2026-03-01"): (2, "no event"),
    ("--learn", ".", "--date", "9999-12-31"): (2, "is no day"),
}


@pytest.mark.parametrize("words", WRONG_WORDS, ids=" ".join)
def test_wrong_words_are_named(run: Run, typed: tuple[str, ...], words: tuple[str, ...]) -> None:
    status, out, err = run(*typed, *words)
    expected, problem = WRONG_WORDS[words]
    assert (status, out) == (expected, "")
    assert problem in err
    assert err.count("\n") == 1
    assert "; " in err or err.startswith("say ")


def test_a_weather_is_shown_and_taken(
    run: Run, run_json: RunJson, typed: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "own.toml").write_text(run("contract", "simulate", "--show", "storm")[1])
    assert run_json(*typed, "--weather", "own.toml")["weather"]["description"].startswith("A week of storms")


def test_traffic_is_learnt_by_a_command(run: Run, typed: tuple[str, ...], tmp_path: Path) -> None:
    from tests.parts.simulate.test_inputs import record
    from tests.unit.operations.support import gzip

    folder = tmp_path / "archive" / "tap" / "date=1970-01-01" / "hour=03"
    folder.mkdir(parents=True)
    whole = {
        "archived_at_ms": 0,
        "topic": "t",
        "message_id": "m",
        "index": 0,
        "original_base64": None,
        "refusal": None,
    }
    lines = [json.dumps(whole | record("home-1", hour)) for hour in (3, 30)]
    far = json.dumps(whole | record("home-1", 3) | {"accepted_at_ms": 10**30})
    (folder / "far.jsonl.gz").write_bytes(gzip.compress(far.encode()))
    (folder / "a.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    words = "--learn", "archive", "--date", "1970-01-01", "--traffic", "learnt.toml"
    status, out, err = run(*typed, *words)
    assert (status, "far.jsonl.gz could not be read" in err) == (1, True), err
    assert out == "learnt.toml: 1 types of events of 1 homes\n"
    assert run(*typed, "--traffic", "learnt.toml")[0] == 0
