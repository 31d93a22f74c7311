"""Whatever order lifecycle messages come in, and however often: the same state, and events that alternate."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane.presence import Line, Sighting
from parts.presence.recorder import Observation
from tests.parts.presence.world import HOUR, MINUTE, START, WATCH, Home, S, beat

pytestmark = pytest.mark.source("P9")

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


@given(life=lives(), data=st.data())
def test_any_order_and_any_repetition_end_in_the_same_state_and_events_alternate(
    life: list[Observation], data: st.DataObject
) -> None:
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


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from([S, MINUTE, 10 * MINUTE, HOUR]),
            st.sampled_from(["beat", "old", "up", "down", "nothing"]),
        ),
        max_size=20,
    )
)
def test_judging_when_due_reports_the_same_as_judging_always(
    steps: list[tuple[int, str]],
) -> None:
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
