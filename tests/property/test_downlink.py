"""Cloud and device over a network that loses, repeats and reorders, with crashes at every step."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from eventplane.contract import Downlink
from eventplane.downlink.addressing import Addressed
from eventplane.downlink.desired import Desired, Message, State
from eventplane.downlink.device import (
    Acknowledgement,
    Recency,
    StateVersion,
    compare,
    from_data,
    rejected,
    state_version,
    stored,
    to_data,
)
from eventplane.downlink.table import DESIRED, due_in, sort_key
from eventplane.downlink.transitions import (
    KEPT_MS,
    Step,
    ack_timeout,
    acknowledge,
    apply_event,
    connected,
    epoch_changed,
    reconcile,
    reset,
)
from eventplane.downlink.wire import Incoming, received
from eventplane.envelope import parse_event
from eventplane.presence import bucket_of
from eventplane.reasons import Reason
from eventplane.records import MemoryTables, Records
from tests.examples import examples
from tests.unit.eventplane.downlink.events import KEY, NOW_MS, THING, command, deletion, state


def expected(events: Sequence[Addressed]) -> Message | None:
    """The state that a device should have after all events of a key (docs/explanation/downlink.md)."""
    messages = [each.message for each in events]
    live = [each for each in messages if not each.is_deleted]
    if not live:
        return None
    newest = max(live, key=lambda each: each.version)
    ends = [each.version for each in messages if each.is_deleted and each.uid in ("", newest.uid)]
    return None if any(version >= newest.version for version in ends) else newest


@st.composite
def histories(draw: st.DrawFn) -> list[Addressed]:
    """What a sender says of a key: incarnations one after the other, deletions early, late, or never."""
    version, uid = 1, draw(st.sampled_from(["", "a", "a"]))
    uids = [uid]
    events = [state(version, uid)]
    for _ in range(draw(st.integers(1, 10))):
        version += draw(st.integers(1, 3))
        match draw(st.sampled_from(["change", "delete", "recreate", "late"])):
            case "change":
                events.append(state(version, uid))
            case "delete":
                events.append(deletion(version, uid))
            case "recreate":
                uid = uid and f"{uids[0]}{len(uids)}"
                uids.append(uid)
                events.append(state(version, uid))
            case _:
                events.append(
                    deletion(version, draw(st.sampled_from([each for each in uids if each] or [""])))
                )
    return events


@pytest.mark.source("K4", "K-B3")
@settings(max_examples=examples(200))
@given(histories(), st.data())
def test_any_order_and_any_repetition_end_in_the_same_state(
    events: list[Addressed], data: st.DataObject
) -> None:
    repeated = data.draw(st.lists(st.sampled_from(events), max_size=4))
    item: Desired | None = None
    for each in data.draw(st.permutations(events + repeated)):
        item = apply_event(item, THING, each, NOW_MS, is_present=data.draw(st.booleans())).item
    wanted = expected(events)
    assert (item.message.id if item and item.is_present and item.message else None) == (wanted and wanted.id)


MINUTE, HOUR = 60_000, 3_600_000


@dataclass
class Device:
    """A device in one of its lives. `log` is what it applied, in that order."""

    epoch: str
    held: dict[tuple[Downlink, str], StateVersion] = field(default_factory=dict)
    bodies: dict[str, str] = field(default_factory=dict)
    log: list[Incoming] = field(default_factory=list)

    def take(self, text: str) -> Acknowledgement:
        """Store what counts, and answer: one commit."""
        offered = received(parse_event(text))
        match compare(self.held.get((offered.kind, offered.key)), offered):
            case Recency.OLDER:
                return rejected(offered, Reason.OLDER, "")
            case Recency.NEWER:
                self.held[offered.kind, offered.key] = state_version(offered)
                self.log.append(offered)
                if offered.kind is Downlink.STATE:
                    self.bodies.pop(offered.key, None)
                    if not offered.is_deleted:
                        self.bodies[offered.key] = offered.id
        return stored(offered)


class World(RuleBasedStateMachine):
    """One device, its cloud, and all that is on its way between them."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = NOW_MS
        self.number = 0
        self.table = Records(MemoryTables(), "desired", DESIRED)
        self.rival: Any = None
        self.said: dict[str, list[Addressed]] = {}
        self.uids: dict[str, str] = {}
        self.versions: dict[str, int] = {}
        self.commands: dict[str, Addressed] = {}
        self.expired: set[str] = set()
        self.device = Device("life-0")
        self.lives = [self.device]
        self.is_connected = self.is_present = False
        self.inbox: list[Addressed] = []
        self.down: list[str] = []
        self.up: list[str] = []
        self.checks: list[str] = []

    # The cloud's functions.

    def read(self, sk: str) -> Desired | None:
        return self.table.read(THING, sk)

    def sort_keys(self) -> list[str]:
        return [sort_key(each.kind, each.key) for each in self.table.of(THING)]

    def write(self, before: Desired | None, after: Desired | None) -> bool:
        if after:
            return self.table.write(after) is not None
        return before is None or self.table.remove(before)

    def run(self, sk: str, decide: Any, crashes: bool = False) -> None:
        """What a function does about an item; another may be faster, it may crash before it publishes."""
        while True:
            before = self.read(sk)
            step: Step = decide(before)
            rival, self.rival = self.rival, None
            if rival:
                rival()
            self.expired |= {each.message.id for each in step.ended if each.reason == "expired"}
            assert {each.reason for each in step.ended} <= {"expired"}
            if step.item == before or self.write(before, step.item):
                break
        if step.publish and not crashes:
            assert self.is_present
            self.checks.append(sk)
            if self.is_connected:
                self.down.append(step.publish)

    def answer(self, text: str) -> None:
        data = to_data([self.device.take(text)], self.device.epoch)
        self.up.append(json.dumps([self.device.epoch, data]))

    def all_items(self, decide: Any) -> None:
        for sk in self.sort_keys():
            self.run(sk, lambda item: decide(item) if item else Step(None))

    def desired(self, wanted: Addressed, crashes: bool = False) -> None:
        sk = ("s#" if wanted.kind is Downlink.STATE else "c#") + wanted.key
        self.run(sk, lambda item: apply_event(item, THING, wanted, self.now_ms, self.is_present), crashes)

    def reported(self, text: str, crashes: bool = False) -> None:
        epoch, data = json.loads(text)
        if data is None:
            return self.all_items(lambda item: epoch_changed(item, epoch, self.now_ms, self.is_present))
        for ack in from_data(data)[0]:
            sk = ("s#" if ack.kind is Downlink.STATE else "c#") + ack.key
            self.run(
                sk,
                lambda item, ack=ack: (
                    acknowledge(item, ack, epoch, self.now_ms, self.is_present) if item else Step(None)
                ),
                crashes,
            )
        return None

    def checked(self, sk: str, crashes: bool = False) -> None:
        self.run(
            sk, lambda item: ack_timeout(item, self.now_ms, self.is_present) if item else Step(None), crashes
        )

    # The sender.

    @rule(key=st.sampled_from([KEY, "message/carer/today"]), what=st.sampled_from("ccdrl"))
    def the_sender_says(self, key: str, what: str) -> None:
        self.number += 1
        version = self.versions[key] = self.versions.get(key, 0) + 1
        uid = self.uids.setdefault(key, "u0" if key == KEY else "")
        if what == "r" and uid:
            uid = self.uids[key] = f"u{self.number}"
        if what == "l" and uid:
            uid = self.said[key][0].message.uid if self.said.get(key) else uid
        what_else = {"statedelete": True} if what in "dl" else {}
        each = state(version, uid, f"s{self.number}", **what_else)
        each = replace(each, key=key, accepted_at_ms=self.now_ms)
        self.said.setdefault(key, []).append(each)
        self.inbox.append(each)

    @rule(key=st.sampled_from([KEY, "message/carer/today"]))
    def the_operator_resets(self, key: str) -> None:
        """After that the sender counts from 1, and nothing that it said before comes back."""
        item = self.read(f"s#{key}")
        if item is None:
            return
        self.now_ms += 1
        number = self.now_ms
        self.now_ms += 1
        self.versions[key] = 0
        stays = item.message
        # The desired state stays, as a version that every other one follows.
        self.said[key] = [
            replace(each, message=replace(each.message, version=0, is_deleted=stays.is_deleted))
            for each in self.said.get(key, ())
            if stays is not None and each.message.id == stays.id
        ]
        self.run(
            f"s#{key}",
            lambda item: reset(item, number, self.now_ms, self.is_present) if item else Step(None),
        )

    @rule(
        key=st.sampled_from(["lock/door/front", "lock/door/back"]), lasts_ms=st.sampled_from([None, MINUTE])
    )
    def the_sender_commands(self, key: str, lasts_ms: int | None) -> None:
        self.number += 1
        expires_at_ms = None if lasts_ms is None else self.now_ms + lasts_ms
        each = command(f"c{self.number}", self.number, key, expires_at_ms)
        self.commands[each.message.id] = each
        self.inbox.append(each)

    # What is on its way. What is kept comes again.

    def _one(self, way: list[Any], at: int, keeps: bool) -> Any:
        each = way[at % len(way)]
        if not keeps:
            way.remove(each)
        return each

    @precondition(lambda self: self.inbox)
    @rule(at=st.integers(0, 99), keeps=st.booleans(), crashes=st.booleans())
    def an_event_comes(self, at: int, keeps: bool, crashes: bool) -> None:
        self.desired(self._one(self.inbox, at, keeps or crashes), crashes)

    @precondition(lambda self: len(self.inbox) > 1)
    @rule(at=st.integers(0, 99))
    def two_functions_work_on_one_key(self, at: int) -> None:
        faster, slower = self._one(self.inbox, at, False), self._one(self.inbox, at, False)
        self.rival = lambda: self.desired(faster)
        self.desired(slower)

    @precondition(lambda self: self.down)
    @rule(at=st.integers(0, 99), keeps=st.booleans(), power_cut=st.sampled_from(["none", "before", "after"]))
    def the_device_receives(self, at: int, keeps: bool, power_cut: str) -> None:
        text = self._one(self.down, at, keeps)
        if power_cut == "none":
            self.answer(text)
        elif power_cut == "after":
            self.device.take(text)

    @precondition(lambda self: self.down)
    @rule(at=st.integers(0, 99))
    def a_transmission_is_lost(self, at: int) -> None:
        self._one(self.down, at, keeps=False)

    @precondition(lambda self: self.up)
    @rule(at=st.integers(0, 99), keeps=st.booleans(), crashes=st.booleans())
    def a_report_comes(self, at: int, keeps: bool, crashes: bool) -> None:
        self.reported(self._one(self.up, at, keeps or crashes), crashes)

    @precondition(lambda self: self.up and self.checks)
    @rule(at=st.integers(0, 99))
    def a_report_comes_beside_a_check(self, at: int) -> None:
        sk = self._one(self.checks, at, keeps=False)
        self.rival = lambda: self.reported(self._one(self.up, at, keeps=False))
        self.checked(sk)

    @precondition(lambda self: self.checks)
    @rule(at=st.integers(0, 99), keeps=st.booleans(), crashes=st.booleans())
    def a_check_comes(self, at: int, keeps: bool, crashes: bool) -> None:
        self.checked(self._one(self.checks, at, keeps), crashes)

    @precondition(lambda self: self.checks)
    @rule()
    def the_checks_are_lost(self) -> None:
        self.checks.clear()

    # The device, and what is known of it.

    @rule(is_connected=st.booleans(), is_noticed=st.booleans())
    def the_line(self, is_connected: bool, is_noticed: bool) -> None:
        self.is_connected = is_connected
        if is_noticed:
            self.presence_is_known()

    @rule()
    def presence_is_known(self) -> None:
        self.is_present = self.is_connected
        if self.is_present:
            self.all_items(lambda item: connected(item, self.now_ms))

    @rule(is_told_first=st.booleans())
    def the_device_loses_its_state(self, is_told_first: bool) -> None:
        self.device = Device(f"life-{len(self.lives)}")
        self.lives.append(self.device)
        self.up.append(json.dumps([self.device.epoch, None]))
        if is_told_first:
            # Before what the last life had said, which is still on its way.
            self.reported(self.up[-1])

    @rule(passed_ms=st.sampled_from([1_000, 5_000, 20_000, 2 * MINUTE, 20 * MINUTE, 2 * HOUR]))
    def time_passes(self, passed_ms: int) -> None:
        self.now_ms += passed_ms

    @rule()
    def the_reconciler_runs(self) -> None:
        for keys in self.table.key_pages(due_in(bucket_of(THING), self.now_ms, 25)):
            for _, sk in keys:
                self.run(
                    sk,
                    lambda item: (
                        reconcile(item, self.now_ms, self.is_present, is_known=True) if item else Step(None)
                    ),
                )

    @rule()
    def a_month_passes(self) -> None:
        self.all_settles()
        self.down.clear()
        self.now_ms += KEPT_MS
        self.the_reconciler_runs()
        assert all((item := self.read(sk)) and (item.is_present or item.reset) for sk in self.sort_keys())

    # What must hold.

    @invariant()
    def nothing_older_is_applied_after_something_newer(self) -> None:
        log = self.device.log
        for key in {(each.kind, each.key) for each in log}:
            mine = [each for each in log if (each.kind, each.key) == key]
            if key[0] is Downlink.STATE:
                ranks = [(each.reset, each.version, each.is_deleted) for each in mine]
                assert all(one < other for one, other in pairwise(ranks))
            else:
                assert len({each.id for each in mine}) == len(mine)
                orders = [each.order for each in mine]
                assert orders == sorted(set(orders))

    def all_settles(self) -> None:
        """Nothing more is lost: everything on its way arrives, checks and the reconciler do their work."""
        self.is_connected = True
        self.presence_is_known()
        for _ in range(100):
            while self.inbox:
                self.desired(self.inbox.pop(0))
            while self.up:
                self.reported(self.up.pop(0))
            for text in self.down:
                self.answer(text)
            self.down.clear()
            busy = [
                item for sk in self.sort_keys() if (item := self.read(sk)) and item.state is not State.IDLE
            ]
            if not self.up and not busy:
                break
            if not self.up:
                self.now_ms = max(self.now_ms, min(item.due_at_ms or 0 for item in busy))
                self.the_reconciler_runs()
        else:
            raise AssertionError(busy)
        for key, events in self.said.items():
            newest = expected(events)
            assert self.device.bodies.get(key) == (newest and newest.id)
        done = {each.id for life in self.lives for each in life.log} | self.expired
        assert self.commands.keys() <= done
        late = {id for id, each in self.commands.items() if each.message.expires_at_ms is not None}
        assert self.expired <= late

    def teardown(self) -> None:
        self.all_settles()


TestDownlink = World.TestCase
TestDownlink.settings = settings(max_examples=examples(150), stateful_step_count=40)
