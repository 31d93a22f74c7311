"""Whatever order lifecycle messages come in, and however often: the same state, and events that alternate."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane.presence import DeviceState, Line, Sighting
from lambdas.common.queue import Invocation, QueueMessage
from lambdas.common.sender import TAKEN, Answer
from lambdas.common.sender import Message as SqsMessage
from lambdas.common.sqs import SqsSender
from lambdas.presence.judge import Judge
from lambdas.presence.parts import Parts
from lambdas.presence.recorder import Observation, Recorder
from lambdas.presence.timer_queue import TimerQueue
from lambdas.presence.timers import TimerReader
from tests.fakes.clock import FakeClock
from tests.fakes.sqs import FakeMessage, FakeSqs
from tests.unit.lambdas.presence.world import HOUR, MINUTE, START, WATCH, Home, S, beat, sent
from tests.unit.lambdas.support import deliver

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


class Killed(BaseException):
    """A function ended in the middle."""


@dataclass
class Plane:
    """The functions around a table and queues in memory, in the time of a test; they are killed at `deaths`,
    counted in calls of AWS."""

    deaths: frozenset[int]
    items: dict[str, DeviceState] = field(default_factory=dict)
    sent: list[dict[str, Any]] = field(default_factory=list)
    _calls: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self.clock = FakeClock()
        self.sqs = FakeSqs(self.clock)
        self.timers = self.sqs.create_queue(QueueName="timers")["QueueUrl"]
        parts = Parts(
            table=self,  # type: ignore[arg-type]
            watch=WATCH,
            timers=TimerQueue(SqsSender(self), self.timers),
            sender=self,  # type: ignore[arg-type]
            clock=self.clock,
        )
        self.reader = TimerReader(parts, Judge(parts, "outbox"))
        self.recorder = Recorder(
            lambda body, sent_at_ms: self._said[int(body)],  # noqa: ARG005 - of the readers' shape
            parts,
        )
        self._said: list[Observation] = []

    def _call(self) -> None:
        if next(self._calls) in self.deaths:
            raise Killed

    def read(self, devices: Iterable[str]) -> dict[str, DeviceState]:
        self._call()
        return {name: self.items.get(name, DeviceState(name)) for name in devices}

    def write(self, state: DeviceState, due_ms: int | None) -> DeviceState | None:
        self._call()
        if self.items.get(state.device, DeviceState(state.device)).revision != state.revision:
            return None
        stored = self.items[state.device] = replace(state, revision=state.revision + 1, due_ms=due_ms)
        self._call()
        return stored

    def send(self, url: str, batch: Sequence[SqsMessage]) -> list[Answer]:
        self._call()
        self.sent += [json.loads(each.body) for each in batch]
        self._call()
        return [TAKEN] * len(batch)

    def send_message_batch(self, **request: Any) -> dict[str, Any]:
        self._call()
        answer: dict[str, Any] = self.sqs.send_message_batch(**request)
        self._call()
        return answer

    def record(self, observation: Observation) -> None:
        """Record; a killed run is repeated two seconds later."""
        self._said.append(observation)
        body = str(len(self._said) - 1)
        for attempt in range(1, 100):
            message = QueueMessage("m", body, self.clock(), attempt)
            try:
                assert self.recorder.process([message], Invocation("i", lambda: 30_000)) == frozenset()
            except Killed:
                self.fire(self.clock() + 1_000 * REDELIVERED_S)
            else:
                return

    def fire(self, until_ms: int) -> None:
        """Let time pass and timers fire; one whose run is killed is redelivered."""
        while self.waiting and (next_ms := min(each.visible_ms for each in self.waiting)) <= until_ms:
            self.clock.now_ms = max(self.clock(), next_ms)
            with suppress(Killed):
                _, failed = deliver(self.sqs, self.timers, self.reader.process, wait_s=REDELIVERED_S)
                assert failed == frozenset()
        self.clock.now_ms = until_ms

    @property
    def waiting(self) -> list[FakeMessage]:
        """The timers in the queue."""
        return self.sqs.queue(self.timers).messages

    @property
    def state(self) -> DeviceState:
        return self.items.get("home-1", DeviceState("home-1"))

    @property
    def overdue_ms(self) -> int:
        """For how long the device should have been judged already."""
        due_ms = WATCH.due_ms(self.state)
        return 0 if due_ms is None else max(0, self.clock() - due_ms)


REDELIVERED_S = 2

STEPS = st.lists(
    st.tuples(
        st.sampled_from([S, MINUTE, 10 * MINUTE, HOUR]),
        st.sampled_from(["beat", "old", "up", "down", "loud", "nothing"]),
    ),
    max_size=20,
)


def _observation(what: str, now_ms: int, version: int) -> Observation | None:
    if what in ("up", "down"):
        line = Line.CONNECTED if what == "up" else Line.DISCONNECTED
        return Observation("home-1", Sighting(line, now_ms, version, f"session-{version}"))
    if what == "loud":
        return sent((now_ms - START) // (5 * MINUTE))
    return beat(now_ms, oldest_urgent_s=100.0 if what == "old" else 0.0) if what != "nothing" else None


@given(steps=STEPS)
def test_a_device_is_judged_within_a_second_of_its_deadline_without_any_sweep(
    steps: list[tuple[int, str]],
) -> None:
    plane, version = Plane(frozenset()), 0
    for wait_ms, what in steps:
        for _ in range(wait_ms // S if wait_ms <= MINUTE else 1):
            plane.fire(plane.clock() + (S if wait_ms <= MINUTE else wait_ms))
            assert plane.overdue_ms < S
        version += what == "up"
        if observation := _observation(what, plane.clock(), version):
            plane.record(observation)
    ids = [each["id"] for each in plane.sent]
    assert len(ids) == len(set(ids)), "nothing is said twice"


@given(steps=STEPS, deaths=st.frozensets(st.integers(0, 200), max_size=12))
def test_no_timer_is_lost_wherever_a_function_is_killed(
    steps: list[tuple[int, str]], deaths: frozenset[int]
) -> None:
    plane, version = Plane(deaths), 0
    for wait_ms, what in steps:
        plane.fire(plane.clock() + wait_ms)
        version += what == "up"
        if observation := _observation(what, plane.clock(), version):
            plane.record(observation)
    plane.fire(plane.clock() + 9 * HOUR)
    assert (plane.overdue_ms, plane.state.unsent) == (0, ())
    assert plane.waiting == [], "no timer outlives its deadline"
    line = [each["type"].split(".")[-2] for each in plane.sent if "connected" in each["type"]]
    seen = plane.state.sighting
    assert line[-1:] == ([] if seen is None else [str(seen.line)])
