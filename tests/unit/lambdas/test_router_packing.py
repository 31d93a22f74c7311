"""Packed inboxes: what the router puts into one message, and what becomes of each event in it."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from eventplane.batch import pack
from eventplane.contract import Contract, Priority
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.reasons import Outcome
from eventplane.sqs_binding import split
from lambdas.common.sender import TAKEN, Answer, Fate, Message
from tests.unit.lambdas.support import ALARM, READING, event, frame, message
from tests.unit.lambdas.test_dispatch import Sending, frames, times

ANALYTICS = "https://care-analytics.inbox"


@pytest.fixture
def sending(contract: Contract) -> Sending:
    return Sending(contract, most=50)


class Recorder:
    """Notes each message's bodies by URL; refuses for good what contains `poison`."""

    def __init__(self, poison: str = "\0", fate: Fate = Fate.NEVER) -> None:
        self.sent: list[tuple[str, Message]] = []
        self._poison = poison
        self._fate = fate
        self._lock = threading.Lock()

    def send(self, url: str, batch: Sequence[Message]) -> list[Answer]:
        with self._lock:
            self.sent += [(url, each) for each in batch]
        return [Answer(self._fate, "no") if self._poison in each.body else TAKEN for each in batch]

    def sizes(self, url: str = ANALYTICS) -> list[int]:
        return sorted((len(split(each.body)) for to, each in self.sent if to == url), reverse=True)


def test_events_of_an_invocation_share_messages_up_to_what_the_contract_says(sending: Sending) -> None:
    sender = Recorder()
    done, failed = sending.send(sender, *frames(40, 40, 40))
    assert (sender.sizes(), failed) == ([50, 50, 20], set())
    # Ledger and audit see single events as before.
    assert len(done) == 120
    assert {step.record.outcome for step in done} == {Outcome.DELIVERED}


def test_an_inbox_that_says_nothing_gets_one_event_a_message(contract: Contract) -> None:
    sender = Recorder()
    Sending(contract).send(sender, *frames(5))
    assert sender.sizes() == [1] * 5


def test_an_urgent_event_is_a_message_of_its_own(sending: Sending) -> None:
    sender = Recorder()
    events = [event(f"r{at}", READING) for at in range(5)]
    clinical = [event(f"a{at}", "org.eventplane.alarm.clinical.v1") for at in range(3)]
    done, _ = sending.send(sender, message("m", frame(pack([*events, *clinical]))))
    assert sender.sizes() == [5, 1, 1, 1]
    assert {step.record.priority for step in done if step.record.id[0] == "a"} == {Priority.URGENT}


def test_a_pack_carries_one_route_and_its_hints(sending: Sending) -> None:
    sender = Recorder()
    sending.send(sender, *frames(3))
    (packed,) = (each for to, each in sender.sent if to == ANALYTICS)
    assert packed.hints["route"] == "readings-to-care-analytics"
    assert packed.hints["events"] == "3"


def test_an_event_that_sqs_will_never_take_is_alone_a_dead_letter(sending: Sending) -> None:
    sender = Recorder(poison='"id":"0-1"')
    done, failed = sending.send(sender, *frames(3))
    assert sender.sizes() == [3, 1, 1, 1]
    assert failed == set()
    outcomes = {
        (step.record.id, step.record.outcome) for step in done if step.record.type != DEAD_LETTER_TYPE
    }
    assert outcomes == {
        ("0-0", Outcome.DELIVERED),
        ("0-1", Outcome.DEAD_LETTERED),
        ("0-2", Outcome.DELIVERED),
    }


def test_a_pack_that_fails_brings_back_each_message_with_an_event_in_it(sending: Sending) -> None:
    sender = Recorder(poison='"id":"1-0"', fate=Fate.AGAIN)
    done, failed = sending.send(sender, *frames(30, 10, 30))
    assert sender.sizes() == [50, 20]
    assert failed == {"m0", "m1", "m2"}
    assert len(done) == 20


def test_without_time_nothing_is_sent_and_everything_comes_again(sending: Sending) -> None:
    sender = Recorder()
    done, failed = sending.send(sender, *frames(3, 3), has_time=times(0))
    assert (sender.sent, done, failed) == ([], [], {"m0", "m1"})


def test_ten_full_frames_are_few_calls(sending: Sending, contract: Contract) -> None:
    sender = Recorder()
    done, failed = Sending(contract, most=250).send(sender, *frames(*[1_000] * 10), has_time=times(5))
    assert (len(done), failed, sender.sizes()) == (10_000, set(), [250] * 40)


def test_alarms_are_not_delayed_by_packs(sending: Sending) -> None:
    sender = Recorder()
    sending.send(sender, *frames(200), *frames(1, type=ALARM))
    assert sender.sent[0][0] != ANALYTICS
