"""Readers of an inbox hand out what its sender numbered in that order, whatever the way does to it."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane_client.errors import NothingThereError
from eventplane_client.inbox import Inbox, Received
from eventplane_client.memory import MemoryPlane, MemoryTransport
from eventplane_client.memory_duplicates import Memory, MemoryFilter
from eventplane_client.notices import Notice, SequenceGap
from eventplane_client.system import SYSTEM
from tests.unit.client.worlds import READER, numbered

pytestmark = pytest.mark.source("P17", "C2", "F4", "N5")

VISIBILITY_S = 30.0
NEVER_S = 1e9


class Readers:
    """Two readers of one inbox, whose queue gives out what is `sent` in any order, late, and twice."""

    def __init__(self, sent: int, random: Random) -> None:
        self.random = random
        self.now = 1_000.0
        self.plane = MemoryPlane(visibility_s=VISIBILITY_S, max_receives=1_000, clock=lambda: self.now)
        self.memory = Memory()
        self.gaps: list[Notice] = []
        self.in_flight = [*range(1, sent + 1)]
        self.done: set[str] = set()
        self.inboxes = [self.opened(), self.opened()]
        self.in_hand: list[list[Received]] = [[], []]

    def opened(self) -> Inbox:
        filter = MemoryFilter(self.memory, lease=lambda: VISIBILITY_S, clock=lambda: self.now)
        return Inbox(
            READER,
            MemoryTransport(self.plane, READER),
            filter,
            gap_timeout_s=NEVER_S,
            on_notice=self.gaps.append,
            on_doubt=lambda _: True,
            system=replace(SYSTEM, monotonic=lambda: self.now),
        )

    def play(self, action: str) -> None:
        getattr(self, action)(self.random.randrange(2))
        self.now += self.random.choice([0.01, 2.0])
        for each in self.inboxes:  # as its thread does
            extender = each._reader._extender
            held = list(extender._held.values())
            extender._extend([each.message for each in held], [each.key for each in held])

    def come(self, at: int) -> None:
        if self.in_flight:
            number = self.in_flight.pop(self.random.randrange(len(self.in_flight)))
            for _ in range(self.random.choice([1, 1, 2])):
                self.plane.deliver(READER, numbered(number))

    def receive(self, at: int) -> None:
        try:
            received = self.inboxes[at].receive_batch(self.random.choice([1, 3]), 0)
        except NothingThereError:
            return
        for each in received:
            mine = {other.event.id for other in self.in_hand[at]}
            assert each.event.id not in self.done
            before = {str(number) for number in range(1, int(each.event.id))}
            assert before <= self.done | mine  # nothing goes before what another reader has in hand
            self.in_hand[at].append(each)

    def acknowledge(self, at: int) -> None:
        if self.in_hand[at]:
            received = self.in_hand[at].pop(self.random.randrange(len(self.in_hand[at])))
            received.ack()
            self.done.add(received.event.id)

    def give_back(self, at: int) -> None:
        if self.in_hand[at]:
            self.in_hand[at].pop(self.random.randrange(len(self.in_hand[at]))).nack()

    def crash(self, at: int) -> None:
        self.in_hand[at].clear()
        self.inboxes[at]._reader._extender.close()  # its thread ends with the process
        self.inboxes[at] = self.opened()

    def close(self, at: int) -> None:
        self.in_hand[at].clear()
        self.inboxes[at].close()
        self.inboxes[at] = self.opened()


@given(st.integers(1, 12), st.integers(0, 100), st.integers())
def test_no_event_comes_before_one_that_was_sent_earlier(sent: int, steps: int, seed: int) -> None:
    readers = Readers(sent, Random(seed))
    actions = ["come", "receive", "receive", "acknowledge", "acknowledge", "give_back", "crash", "close"]
    for _ in range(steps):
        readers.play(readers.random.choice(actions))
    for _ in range(10_000):
        if len(readers.done) == sent:
            break
        readers.play(readers.random.choice(["come", "receive", "acknowledge"]))
    for each in readers.inboxes:
        each.close()
    assert len(readers.done) == sent
    assert not [each for each in readers.gaps if isinstance(each, SequenceGap)]
