"""The requests of an asker against a model: each ends with every peer accounted for, and circuits follow."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from eventplane.conversation.messages import Replier, Reply, Status
from eventplane.conversation.open_requests import (
    OPENS_AFTER,
    Circuit,
    CircuitBreaker,
    CircuitChanged,
    OpenRequests,
    Peers,
    TooManyOpenError,
)
from tests.examples import examples

pytestmark = pytest.mark.source("C7")

PEERS = [Replier(each) for each in "abc"]
peers = st.sampled_from(PEERS)
MOST = 5


class Asking(RuleBasedStateMachine):
    """The model of a peer is the tail of what became of the requests that waited for it."""

    requests = Bundle("requests")

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[CircuitChanged] = []
        self.book = OpenRequests(self.changes.append, MOST)
        self.number = 0
        self.waits: dict[str, set[Replier]] = {}
        self.probes: dict[Replier, str] = {}
        self.expected: dict[str, set[Replier]] = {}
        self.circuits = dict.fromkeys(PEERS, Circuit.CLOSED)
        self.unanswered = dict.fromkeys(PEERS, 0)
        self.asked: set[Replier] = set()
        self.announced: dict[Replier, int] = {}
        self.heard_of: dict[Replier, int] = {}

    @precondition(lambda self: len(self.waits) < MOST)
    @rule(target=requests, expected=st.sets(peers))
    def ask(self, expected: set[Replier]) -> str:
        self.number += 1
        name = str(self.number)
        for peer in expected:  # what an asker that never asked a peer hears of it opens nothing
            if peer in self.announced and self.heard_of.get(peer) != self.announced[peer]:
                self.heard_of[peer] = self.announced[peer]
                self.heard(peer)
        self.book.open(name, sorted(expected, key=str), self.announced)
        self.expected[name], self.waits[name] = expected, set()
        self.asked |= expected
        for peer in expected:
            if self.circuits[peer] is Circuit.CLOSED:
                self.waits[name].add(peer)
            elif self.circuits[peer] is Circuit.HALF_OPEN and peer not in self.probes:
                self.waits[name].add(peer)
                self.probes[peer] = name
        return name

    @precondition(lambda self: len(self.waits) == MOST)
    @rule(expected=st.sets(peers))
    def ask_too_much(self, expected: set[Replier]) -> None:
        with pytest.raises(TooManyOpenError):
            self.book.open("more", expected)

    @rule(name=requests, peer=peers, status=st.sampled_from([Status.HANDLED, Status.FAILED]))
    def reply(self, name: str, peer: Replier, status: Status) -> None:
        ignored = self.book.ignored
        is_counted = self.book.replied(name, Reply(peer, status))
        assert is_counted == (peer in self.expected[name])
        assert self.book.ignored == ignored + (not is_counted)
        if peer in self.waits.get(name, ()):
            self.waits[name].remove(peer)
            self.unanswered[peer] = 0
            if self.probes.get(peer) == name:
                del self.probes[peer]
                self.circuits[peer] = Circuit.CLOSED
                return
        self.heard(peer)

    @rule(peer=peers)
    def late_reply(self, peer: Replier) -> None:
        self.book.replied("of another process", Reply(peer, Status.HANDLED))
        self.heard(peer)

    @rule(name=requests, handlers=st.sets(peers))
    def look_again(self, name: str, handlers: set[Replier]) -> None:
        self.book.update_handlers(name, handlers)
        for peer in self.waits.get(name, set()) - handlers:
            self.release(name, peer)

    @rule(peer=peers, is_new=st.booleans())
    def announce(self, peer: Replier, is_new: bool) -> None:
        before = self.announced.get(peer)
        if is_new or before is None:
            self.announced[peer] = (before or 0) + 1
        self.book.update_handlers("any", PEERS, self.announced)
        if peer in self.asked and self.heard_of.get(peer) != self.announced[peer]:
            self.heard(peer)
        self.heard_of.update({each: it for each, it in self.announced.items() if each in self.asked})

    @rule(name=consumes(requests), timed_out=st.booleans())
    def end(self, name: str, timed_out: bool) -> None:
        assert self.book.is_answered(name) == (not self.waits[name])
        replies, missing = self.book.end(name, timed_out=timed_out)
        waits = self.waits.pop(name)
        assert missing == sorted(str(each) for each in waits)
        # Each peer is in exactly one of both.
        assert {*replies}.isdisjoint(missing)
        assert {*replies, *missing} == {each.participant for each in self.expected[name]}
        for peer in waits:
            is_probe = self.probes.get(peer) == name
            if is_probe:
                del self.probes[peer]
            if timed_out and is_probe:
                self.circuits[peer] = Circuit.OPEN
            elif timed_out and self.circuits[peer] is Circuit.CLOSED:
                self.unanswered[peer] += 1
                if self.unanswered[peer] == OPENS_AFTER:
                    self.circuits[peer] = Circuit.OPEN

    @rule(peer=peers, times=st.integers(OPENS_AFTER - 1, OPENS_AFTER))
    @precondition(lambda self: len(self.waits) < MOST)
    def be_silent(self, peer: Replier, times: int) -> None:
        for _ in range(times):
            self.end(self.ask({peer}), timed_out=True)

    @invariant()
    def circuits_are_those_of_the_model(self) -> None:
        assert self.book.peers() == {str(peer): self.circuits[peer] for peer in self.asked}
        assert len(self.book) == len(self.waits)

    @invariant()
    def every_change_was_reported(self) -> None:
        known = dict.fromkeys(PEERS, Circuit.CLOSED)
        for change in self.changes:
            assert known[change.peer] is not change.circuit
            known[change.peer] = change.circuit
        assert known == self.circuits

    def heard(self, peer: Replier) -> None:
        if self.circuits[peer] is Circuit.OPEN and peer in self.asked:
            self.circuits[peer] = Circuit.HALF_OPEN

    def release(self, name: str, peer: Replier) -> None:
        if peer in self.waits.get(name, ()):
            self.waits[name].remove(peer)
            if self.probes.get(peer) == name:
                del self.probes[peer]


Asking.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=40)
TestAsking = Asking.TestCase


def test_the_longest_unasked_peer_is_forgotten_first() -> None:
    known = Peers(lambda _: None, most=2)
    for each in ("a", "b", "a", "c"):
        assert known.admit(Replier(each)) is False
    assert [*known.states()] == ["a", "c"]
    known.change(Replier("b"), CircuitBreaker.heard)  # forgotten: it changes nothing
    assert [*known.states()] == ["a", "c"]
