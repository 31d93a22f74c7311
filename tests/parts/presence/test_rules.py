"""What is read of a device, and what is said of it and when: the rules alone."""

import json
import re
import tomllib
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane.device_reports import HEARTBEAT, MANIFEST, forwarder_source
from eventplane.envelope import write_event
from eventplane.names import NOTICE, NOTICE_OF_MANY, SUSPECTED
from eventplane.presence import Heartbeat, Held, Level, Line, PresenceItem, QuietReason, Sighting
from eventplane.traffic import Traffic, traffic_text
from parts.presence.recorder import (
    MAX_INTERVAL_S,
    Observation,
    UnreadableObservationError,
    read_heartbeat,
    read_presence,
)
from parts.presence.reports import OVER, TEXT_BY_REASON, TEXTS, notice_of_many
from parts.presence.watch import CAUSES, LOST
from tests.fakes.iot import rule_failure
from tests.parts.presence.world import (
    CERTIFICATE,
    HOUR,
    LIMITS,
    MINUTE,
    START,
    WATCH,
    Home,
    S,
    beat,
    connected,
    disconnected,
    heartbeat,
    lifecycle,
    sent,
)
from tests.plane import shipped_contract

SKEW_MS = 2 * MINUTE
"""How wrong IoT Core's times may be (AWS IoT Developer Guide, lifecycle events)."""


@st.composite
def lives(draw: st.DrawFn) -> list[Observation]:
    """What IoT Core says in the life of one client, in the order in which it happened."""
    said: list[Observation] = []
    at_ms, version = START, 0
    for number in range(draw(st.integers(1, 8))):
        away_ms = draw(st.sampled_from([S, 30 * S, 3 * MINUTE, HOUR // 2, 2 * HOUR, 30 * HOUR]))
        at_ms += away_ms
        # Of a client that was away for an hour the numbers begin anew; otherwise they may skip some.
        version = 0 if away_ms > HOUR else version + draw(st.integers(1, 3))
        session = f"session-{number}"
        said.append(_said(draw, Line.CONNECTED, at_ms, version, session))
        at_ms += draw(st.sampled_from([S, MINUTE, HOUR, 20 * HOUR]))
        # A connection that the next one takes over ends a moment after that has begun.
        end_ms = at_ms + draw(st.sampled_from([0, 30 * S]))
        said.append(_said(draw, Line.DISCONNECTED, end_ms, version, session))
    if draw(st.booleans()):
        said.pop()
    return said


def _said(draw: st.DrawFn, line: Line, at_ms: int, version: int, session: str) -> Observation:
    wrong_ms = draw(st.integers(-SKEW_MS, SKEW_MS))
    return Observation("home-1", Sighting(line, at_ms + wrong_ms, version, session))


@pytest.mark.long
@given(life=lives(), data=st.data())
def test_order_does_not_matter(life: list[Observation], data: st.DataObject) -> None:
    repeated = data.draw(st.lists(st.sampled_from(life)))
    home, now_ms = Home(), START
    for observation in data.draw(st.permutations(life + repeated)):
        now_ms += data.draw(st.sampled_from([0, S, MINUTE, 3 * MINUTE, HOUR]))
        home.observe(observation)
        home.judge(now_ms)
    assert home.state.sighting == life[-1].said
    final_ms = max(now_ms, *(each.said.at_ms for each in life)) + HOUR
    home.judge(final_ms)
    home.judge(final_ms + HOUR)

    lines = [each["type"].split(".")[-2] for each in home.events if "notice" not in each["type"]]
    assert all(one != other for one, other in pairwise(lines))
    assert lines[-1] == life[-1].said.line  # type: ignore[union-attr]
    phases = [each["data"]["phase"] for each in home.events if "notice" in each["type"]]
    assert phases == ["opened", "over"] * (len(phases) // 2) + ["opened"] * (lines[-1] == "disconnected")
    ids = [each["id"] for each in home.events]
    assert len(ids) == len(set(ids))


@pytest.mark.long
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from([S, MINUTE, 10 * MINUTE, HOUR]),
            st.sampled_from(["beat", "old", "up", "down", "nothing"]),
        ),
        max_size=20,
    )
)
def test_judging_when_due_is_enough(steps: list[tuple[int, str]]) -> None:
    """That is what the index is for: it may leave nothing out, and need not be asked twice for nothing."""
    lazy, eager = Home(), Home()
    now_ms, version = START, 0
    for wait_ms, what in steps:
        now_ms += wait_ms
        version += what == "up"
        line = Line.CONNECTED if what == "up" else Line.DISCONNECTED
        for home in (lazy, eager):
            if what in ("up", "down"):
                home.observe(Observation("home-1", Sighting(line, now_ms, version, f"session-{version}")))
            elif what != "nothing":
                home.observe(beat(now_ms, oldest_urgent_s=100.0 if what == "old" else 0.0))
        eager.judge(now_ms)
        due_ms = WATCH.due_ms(lazy.state)
        if due_ms is not None and due_ms <= now_ms:
            before = len(lazy.events)
            lazy.judge(now_ms)
            assert len(lazy.events) > before
        assert lazy.events == eager.events


pytestmark = pytest.mark.source("P9")
Read = Callable[[str, int], Observation | None]


@pytest.fixture
def home() -> Home:
    """A device that was reported as connected."""
    home = Home()
    home.observe(connected(START, 0))
    assert home.said(START + MINUTE) == ["connected"]
    return home


def test_a_connection_is_reported_after_a_minute(home: Home) -> None:
    assert Home().said(START) == []
    new = Home()
    new.observe(connected(START))
    assert new.said(START + MINUTE - 1) == []
    (event,) = home.events
    assert (event["subject"], event["partitionkey"]) == ("home-1", "home-1")
    assert event["data"] == {
        "device": "home-1",
        "since": "2026-01-01T00:00:00.000Z",
        "session": "session-0",
    }


@pytest.mark.parametrize(
    ("windows", "exceeded"),
    [
        ([sent(0, 1_001)], ["frames"]),
        ([sent(0, 1, events=10_001)], ["events"]),
        ([sent(0, 1, bytes=1_000_001)], ["bytes"]),
        # Within the quota, however many windows there are.
        ([sent(0, 1_000), sent(1, 600), sent(0, 600), sent(2, 999, events=10_000, bytes=1_000_000)], None),
    ],
)
def test_kinds_of_floods(windows: list[Observation], exceeded: list[str] | None) -> None:
    home = Home()
    home.observe(*windows)
    found = [(each["data"]["exceeded"], each["data"]["since"]) for each in home.judge(START)]
    assert found == ([(exceeded, "2026-01-01T00:00:00.000Z")] if exceeded else [])
    assert (WATCH.due_ms(home.state) is None) is (exceeded is None)


def test_a_flood_is_reported_once(home: Home) -> None:
    home.observe(sent(0))
    assert home.said(START + MINUTE) == ["flooding"]
    home.observe(sent(0), sent(1))
    assert home.said(START + 6 * MINUTE) == []
    home.observe(sent(2, 10))
    assert home.said(START + 14 * MINUTE) == []
    assert home.state.flood is not None
    assert WATCH.due_ms(home.state) == START + 15 * MINUTE
    assert home.said(START + 15 * MINUTE) == []
    assert home.state.flood is None
    home.observe(sent(4))
    assert home.said(START + 21 * MINUTE) == ["flooding"]


def test_an_absent_device_is_reported_once(home: Home) -> None:
    home.observe(disconnected(START + HOUR, 0))
    assert home.said(START + HOUR + 2 * MINUTE - 1) == []
    back = home.state
    assert home.said(START + HOUR + 2 * MINUTE) == ["disconnected", "notice opened"]
    assert home.said(START + HOUR + 3 * MINUTE) == []
    home.observe(connected(START + 2 * HOUR, 1))
    assert home.said(START + 2 * HOUR + 59 * S) == []
    assert home.said(START + 2 * HOUR + MINUTE) == ["connected", "notice over"]
    assert home.events[-2]["data"]["away_s"] == 3_600
    assert home.events[-1]["data"]["title"] == TEXT_BY_REASON[OVER].title.format(device="home-1")
    assert home.said(START + 9 * HOUR) == []
    # A device that reconnects within the limit was never reported.
    in_time = connected(START + HOUR + 119 * S, 1).apply(back)
    assert WATCH.judge(in_time, START + 2 * HOUR).unsent == ()


@pytest.mark.parametrize(
    ("cause", "reason"), [*CAUSES.items(), ("MQTT_KEEP_ALIVE_TIMEOUT", LOST), ("", LOST)]
)
def test_a_notice_has_the_remedy_for_the_cause(home: Home, cause: str, reason: str) -> None:
    home.observe(disconnected(START + HOUR, 0, cause))
    event, notice = home.judge(START + 2 * HOUR)
    assert (event["data"]["reason"], event["data"]["cause"]) == (reason, cause or "UNKNOWN")
    assert notice["data"]["reason"] == reason
    assert notice["data"]["since"] == event["data"]["since"] == "2026-01-01T01:00:00.000Z"
    assert "home-1" in notice["data"]["title"]


def test_every_reason_has_a_text() -> None:
    assert TEXT_BY_REASON.keys() == {LOST, OVER, *CAUSES.values(), *QuietReason, "many", "many_over"}


def test_without_heartbeats_a_device_is_quiet(home: Home) -> None:
    home.observe(beat(START + 5 * MINUTE))
    assert WATCH.due_ms(home.state) == START + 20 * MINUTE
    assert home.said(START + 20 * MINUTE - 1) == []
    assert home.said(START + 20 * MINUTE) == ["quiet", "notice opened"]
    assert home.events[-2]["data"]["reason"] == "no_heartbeat"
    assert WATCH.due_ms(home.state) is None
    assert home.said(START + 30 * MINUTE) == []
    home.observe(beat(START + 31 * MINUTE))
    assert home.said(START + 32 * MINUTE) == ["recovered", "notice over"]
    assert home.events[-2]["data"]["quiet_s"] == 26 * 60


@pytest.mark.parametrize("last", [None, Heartbeat(START, interval_s=0)])
def test_a_device_that_announced_no_heartbeats_is_never_quiet(home: Home, last: Heartbeat | None) -> None:
    home.state = replace(home.state, heartbeat=last)
    assert home.said(START + 100 * HOUR) == []


def test_a_heartbeat_counts_without_a_recorded_connection() -> None:
    home = Home()
    home.observe(beat(START))
    assert home.said(START + 15 * MINUTE) == ["quiet", "notice opened"]


def test_an_absent_device_is_not_reported_as_quiet(home: Home) -> None:
    home.observe(beat(START + MINUTE), disconnected(START + 2 * MINUTE, 0))
    assert home.said(START + HOUR) == ["disconnected", "notice opened"]
    home.observe(connected(START + 2 * HOUR, 1))
    assert home.said(START + 2 * HOUR + MINUTE) == ["connected", "notice over"]
    assert home.said(START + 2 * HOUR + 15 * MINUTE) == ["quiet", "notice opened"]


@pytest.mark.parametrize(("figure", "limit_s"), [("oldest_urgent_s", 60), ("oldest_normal_s", 900)])
def test_a_device_with_an_old_backlog_is_quiet(home: Home, figure: str, limit_s: int) -> None:
    home.observe(beat(START + HOUR, **{figure: limit_s}))
    assert home.said(START + HOUR) == []
    home.observe(beat(START + HOUR + S, **{figure: limit_s + 1.0}))
    assert WATCH.due_ms(home.state) == START + HOUR + S
    quiet, _ = home.judge(START + HOUR + S)
    assert (quiet["data"]["reason"], quiet["data"][figure]) == ("backlog_old", limit_s + 1)
    # It ends at half of it, so that one about the limit is not many.
    home.observe(beat(START + HOUR + 2 * MINUTE, **{figure: 0.6 * limit_s}))
    assert home.said(START + HOUR + 2 * MINUTE) == []
    home.observe(beat(START + HOUR + 3 * MINUTE, **{figure: 0.5 * limit_s}))
    assert home.said(START + HOUR + 3 * MINUTE) == ["recovered", "notice over"]


def test_a_backlog_of_an_outage_has_time_to_drain(home: Home) -> None:
    home.observe(disconnected(START + HOUR, 0))
    home.judge(START + 2 * HOUR)
    home.observe(connected(START + 9 * HOUR, 1), beat(START + 9 * HOUR + MINUTE, oldest_normal_s=8 * 3600.0))
    assert home.said(START + 9 * HOUR + MINUTE) == ["connected", "notice over"]
    home.observe(beat(START + 9 * HOUR + 16 * MINUTE, oldest_normal_s=8.2 * 3600))
    assert home.said(START + 9 * HOUR + 16 * MINUTE) == ["quiet", "notice opened"]


def test_a_worse_state_repeats_a_notice(home: Home) -> None:
    home.observe(beat(START + HOUR, oldest_urgent_s=300.0))
    said = home.said(START + HOUR)
    home.observe(disconnected(START + 2 * HOUR, 0))
    said += home.said(START + 3 * HOUR)
    assert home.state.level is Level.DISCONNECTED
    home.observe(connected(START + 4 * HOUR, 1))
    said += home.said(START + 4 * HOUR + 2 * MINUTE)
    assert home.state.level is Level.QUIET
    home.observe(beat(START + 4 * HOUR + 3 * MINUTE))
    said += home.said(START + 4 * HOUR + 3 * MINUTE)
    assert said == [
        *("quiet", "notice opened"),
        *("disconnected", "notice worsened"),
        "connected",
        *("recovered", "notice over"),
    ]
    assert len({each["data"].get("incident") for each in home.events} - {None}) == 1


def test_nothing_is_decided_while_events_are_unsent(home: Home) -> None:
    home.observe(disconnected(START + HOUR, 0))
    waiting = WATCH.judge(home.state, START + 2 * HOUR)
    assert len(waiting.unsent) == 2
    assert (
        WATCH.judge(connected(START + 3 * HOUR, 1).apply(waiting), START + 5 * HOUR).unsent == waiting.unsent
    )


def test_all_events_are_declared_and_valid_by_their_schemas(home: Home) -> None:
    home.observe(beat(START + HOUR, oldest_urgent_s=300.0))
    home.judge(START + HOUR)
    home.observe(disconnected(START + 2 * HOUR, 0))
    home.judge(START + 3 * HOUR)
    home.observe(connected(START + 4 * HOUR, 1), beat(START + 4 * HOUR + MINUTE))
    home.observe(sent(48))
    home.judge(START + 5 * HOUR)
    contract = shipped_contract()
    many = notice_of_many(OVER, [replace(home.state, held=Held(OVER, "home-1.7", START))], START)
    for event in (*home.events, json.loads(many)):
        assert contract.participants["presence-monitor"].may_send(event["type"])
        (schema,) = contract.event_types[event["type"]].schemas.values()
        jsonschema.Draft202012Validator(schema).validate(event["data"])
    # The keeper of certificates reports suspicions in its name.
    assert {*(each["type"] for each in home.events), SUSPECTED, NOTICE_OF_MANY} == set(
        contract.participants["presence-monitor"].sends or ()
    )


def test_notices_have_no_technical_words() -> None:
    text = json.dumps([list(each.values()) for each in tomllib.loads(TEXTS.read_text()).values()])
    words = set(re.findall(r"[a-z]+", text.lower()))
    assert not words & {"mqtt", "tls", "certificate", "aws", "cloud", "uplink", "heartbeat", "forwarder"}


def test_alternating_devices_have_few_notices(home: Home) -> None:
    for second in range(600):
        at_ms = START + HOUR + second * S
        home.observe(beat(at_ms, oldest_urgent_s=100.0 * (second % 2)))
        home.judge(at_ms)
    notices = [each for each in home.events if each["type"] == NOTICE]
    assert 2 < len(notices) <= 2 * 600 / LIMITS.connected_after_s


UP = Sighting(Line.CONNECTED, START, 7, "session-7")
COUNTED = Traffic(window=7, frames=3, events=5, bytes=900)


@pytest.mark.parametrize(
    ("read", "body", "said"),
    [
        (read_presence, lifecycle(Line.CONNECTED, START, 7), UP),
        (
            read_presence,
            lifecycle(Line.DISCONNECTED, START, 7, cause="AUTH_ERROR"),
            Sighting(Line.DISCONNECTED, START, 7, "session-7", "AUTH_ERROR"),
        ),
        (read_presence, rule_failure(lifecycle(Line.CONNECTED, START, 7).encode()), UP),
        (read_presence, traffic_text("home-1", COUNTED), COUNTED),
        # A heartbeat has the cloud's time, and its interval has a limit.
        (
            read_heartbeat,
            heartbeat(3, oldest_urgent_s=1.5, oldest_normal_s=2),
            Heartbeat(START, 300.0, 1.5, 2.0, "epoch", "000000000003"),
        ),
        (
            read_heartbeat,
            heartbeat(3, interval_s=1e9),
            Heartbeat(START, MAX_INTERVAL_S, 0, 0, "epoch", "000000000003"),
        ),
    ],
    ids=["connection", "end", "redriven", "traffic", "heartbeat", "long interval"],
)
def test_an_observation_is_read(read: Read, body: str, said: Any) -> None:
    assert read(body, START) == Observation("home-1", said)


REFUSED_CONNECTION = {
    "clientId": "home-1",
    "timestamp": START,
    "eventType": "connect_failed",
    "connectFailureReason": "AUTHORIZATION_FAILED",
    "principalIdentifier": CERTIFICATE,
    "ipAddress": "192.0.2.1",
}


@pytest.mark.parametrize(
    "body",
    [
        *(
            lifecycle(Line.CONNECTED, START, clientId=id)
            for id in ("claim-home-1", "renewal-home-1", "a/b", "")
        ),
        lifecycle(Line.CONNECTED, START, principalIdentifier="AROAEXAMPLE:somebody"),
        json.dumps(REFUSED_CONNECTION),
    ],
)
def test_other_clients_are_ignored(body: str) -> None:
    assert read_presence(body, 0) is None


@pytest.mark.parametrize(
    ("read", "body", "problem"),
    [
        *(
            (read_presence, body, "not a lifecycle message")
            for body in (
                "",
                "[]",
                "7",
                "{}",
                '{"base64OriginalPayload": "?"}',
                '{"base64OriginalPayload": 7}',
                lifecycle(Line.CONNECTED, START, eventType="subscribed"),
                lifecycle(Line.CONNECTED, START, versionNumber="first"),
                lifecycle(Line.CONNECTED, START, timestamp=None),
                "[" * 100_000,
            )
        ),
        *(
            (read_presence, json.dumps({"device": "home-1", "traffic": traffic}), None)
            for traffic in (None, {}, {"window": "soon"}, 7)
        ),
        (read_heartbeat, "?", "not an event"),
    ],
    ids=range(15),
)
def test_a_malformed_message_is_refused(read: Read, body: str, problem: str | None) -> None:
    with pytest.raises(UnreadableObservationError, match=problem):
        read(body, 0)


@pytest.mark.parametrize(
    "data",
    [
        *(
            {"interval_s": each, "figures": {"oldest_urgent_s": "old", "oldest_normal_s": {}}}
            for each in (None, "often", -1, [], 0, True, 10**400)
        ),
        *(None, 7, [], {"figures": 7}),
    ],
)
def test_a_heartbeat_with_invalid_figures_or_without_any_counts(data: Any) -> None:
    names = {"id": "1", "source": forwarder_source("a"), "senderdevice": "a", "type": HEARTBEAT}
    observed = read_heartbeat(write_event(names, data).json, START)
    assert isinstance(observed.said, Heartbeat)
    assert observed.said.interval_s in (0, 1)
    assert (observed.said.oldest_urgent_s, observed.said.oldest_normal_s) == (0, 0)


@pytest.mark.parametrize(
    ("type", "source", "device"),
    [
        (MANIFEST, forwarder_source("home-1"), "home-1"),
        (HEARTBEAT, "/homes/1", "home-1"),
        (HEARTBEAT, "/devices//forwarder", ""),
        (HEARTBEAT, "/devices/a%20b/forwarder", "a%20b"),
        # Another's home would seem to be well.
        (HEARTBEAT, forwarder_source("home-2"), "home-1"),
        (HEARTBEAT, forwarder_source("home-2"), ""),
    ],
)
def test_other_events_are_not_heartbeats(type: str, source: str, device: str) -> None:
    names = {"id": "1", "source": source, "type": type, "senderservice": "device"}
    event = write_event(names | ({"senderdevice": device} if device else {}))
    assert read_heartbeat(event.json, START) is None


def test_a_late_or_repeated_heartbeat_changes_nothing() -> None:
    def beat(sequence: int, at_ms: int, **figures: Any) -> Observation:
        observed = read_heartbeat(heartbeat(sequence, **figures), at_ms)
        assert observed is not None
        return observed

    state = beat(7, START).apply(PresenceItem("home-1"))
    assert beat(6, START + S).apply(state) is state
    assert beat(7, START + S).apply(state) is state
    assert beat(8, START + S).apply(state) is not state
    reborn = Observation("home-1", Heartbeat(START + S, 300.0, epoch="another", sequence="000000000001"))
    assert reborn.apply(state).heartbeat == reborn.said
    assert beat(8, START).apply(reborn.apply(state)).heartbeat == reborn.said
