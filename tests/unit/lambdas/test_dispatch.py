"""How planned deliveries are sent: in parallel, packed, by whole messages, in order in FIFO queues."""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, repeat
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane.batch import pack
from eventplane.contract import Contract, Priority, contract_document
from eventplane.contract.publication import cloud_destinations
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.reasons import Outcome
from eventplane.sqs_binding import split
from lambdas.common import system
from lambdas.common.queue import Invocation, QueueMessage
from lambdas.common.sender import TAKEN, Acceptance, Answer, OutgoingMessage
from lambdas.router import service
from lambdas.router.dispatch import THREADS, Dispatch
from lambdas.router.engine import build_engine
from lambdas.router.planner import Step
from lambdas.router.service import LIMITS, fifo_groups
from tests.small_contract import with_changes
from tests.unit.lambdas.support import (
    ALARM,
    NOW_MS,
    READING,
    Cloud,
    event,
    frame,
    invocation,
    message,
    with_packs,
)

LIMIT_S = 20
"""The longest wait of a test, seconds."""
CARE = "https://care-analytics.inbox"


class Recorder:
    """Takes every message but those that contain `poison`; `before` is called with each URL first."""

    def __init__(
        self,
        before: Callable[[str], Any] = str,
        poison: str = "\0",
        acceptance: Acceptance = Acceptance.NEVER,
    ) -> None:
        self.calls: list[tuple[str, list[OutgoingMessage]]] = []
        self._before = before
        self._poison = poison
        self._acceptance = acceptance
        self._lock = threading.Lock()

    def send(self, url: str, batch: Sequence[OutgoingMessage]) -> list[Answer]:
        self._before(url)
        with self._lock:
            self.calls.append((url, list(batch)))
        return [Answer(self._acceptance, "no") if self._poison in each.body else TAKEN for each in batch]

    def ids(self, url: str = CARE) -> list[list[str]]:
        """The ids of events, call by call."""
        return [[json.loads(each.body)["id"] for each in batch] for to, batch in self.calls if to == url]

    def sizes(self) -> list[int]:
        """How many events each message for care-analytics has, the fullest first."""
        messages = (each for url, batch in self.calls if url == CARE for each in batch)
        return sorted((len(split(each.body)) for each in messages), reverse=True)


class Sending:
    """Sends what the device router plans for `messages`; care-analytics takes `most` events a message."""

    def __init__(self, contract: Contract, queues: dict[str, str] | None = None, most: int = 1) -> None:
        contract = with_packs(contract, most)
        self.queues = {each.address: f"https://{each.address}" for each in cloud_destinations(contract)}
        self.queues |= queues or {}
        self._engine = build_engine(contract, ["device.outbox"], self.queues, cpu_time=system.cpu_time)

    def __call__(
        self, sender: Any, *messages: QueueMessage, has_time: Callable[[], bool] = lambda: True
    ) -> tuple[list[Step], set[str]]:
        steps = [step for each in messages for step in self._engine.planner.plan(each, NOW_MS)]
        time = Mock(may_start=has_time, answers_s=lambda: LIMIT_S)
        return Dispatch(sender, self.queues, system.threads).send(self._engine, steps, NOW_MS, time)


def frames(*sizes: int, type: str = READING) -> list[QueueMessage]:
    """A message for each size, with so many events."""
    return [
        message(f"m{at}", frame(pack([event(f"{at}-{number}", type) for number in range(size)])))
        for at, size in enumerate(sizes)
    ]


def times(number: int) -> Callable[[], bool]:
    """There is time for so many calls."""
    left: Iterator[bool] = iter([True] * number)
    return lambda: next(left, False)


def test_the_number_of_calls_in_flight_is_limited(contract: Contract) -> None:
    together = threading.Barrier(THREADS)
    lock, now, most = threading.Lock(), 0, 0

    def enter(_: str) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        together.wait(LIMIT_S)  # broken, and an error, unless all of them are in flight
        with lock:
            now -= 1

    sender = Recorder(enter)
    done, failed = Sending(contract)(sender, *frames(20 * THREADS))
    assert (len(done), failed, most, len(sender.calls)) == (20 * THREADS, set(), THREADS, 2 * THREADS)


@pytest.mark.source("P4")
@pytest.mark.parametrize(("size", "calls", "half", "failed"), [(100, 25, 2, {2, 3}), (200, 22, 1, {1, 2, 3})])
def test_out_of_time(contract: Contract, size: int, calls: int, half: int, failed: set[int]) -> None:
    done, again = Sending(contract)(Recorder(), *frames(*[size] * 4), has_time=times(calls))
    assert again == {f"m{at}" for at in failed}
    assert {step.record.message_id for step in done} & again == {f"m{half}"}


@pytest.mark.source("P4", "N1")
def test_a_call_that_does_not_end_leaves_the_ledger_its_time(cloud: Cloud) -> None:
    end = threading.Event()

    def hang(url: str) -> None:
        if url.startswith("nats:"):
            assert end.wait(LIMIT_S)

    cloud.queues["care-analytics.inbox"] = "nats://care-analytics.inbox"
    router = cloud.router()
    sender = Recorder(hang)
    dispatch = router.dispatch = Dispatch(sender, cloud.queues, system.threads)
    stuck, alarm = frames(10)[0], message("m1", frame(event("1", ALARM)))
    # The second call waits for the thread of the first, and is not made when that continues.
    for _ in range(2):
        left_ms = chain([LIMITS.planning_ms] * 2, repeat(LIMITS.call_ms))  # to plan and to start a call
        assert router.process([stuck], Invocation("1", left_ms.__next__)) == {"m0"}
    assert router.process([alarm], invocation()) == frozenset()
    assert {line["id"] for line in cloud.decisions()} == {"1"}
    end.set()
    dispatch._pools["nats"].shutdown()
    assert sender.ids("nats://care-analytics.inbox") == [[f"0-{at}" for at in range(10)]]


@pytest.mark.source("P13", "N1")
def test_alarms_wait_for_no_other_protocol(contract: Contract) -> None:
    alarmed = threading.Event()

    def wait_for_alarm(url: str) -> None:
        if url.startswith("nats:"):
            assert alarmed.wait(LIMIT_S)
        elif url == "https://alarm-centre.inbox":
            alarmed.set()

    first = {"filter": {"exact": {"type": READING}}, "to": "family-app.inbox"}
    plane = with_changes(contract, {"routes": {"a": first, **contract_document(contract)["routes"]}})
    sending = Sending(plane, {"family-app.inbox": "nats://family-app.inbox"})
    both = message("m1", frame(pack([event("1"), event("2", ALARM)])))
    done, failed = sending(Recorder(wait_for_alarm), both)
    assert (len(done), failed) == (4, set())


def test_a_sender_of_another_protocol_is_used_by_one_thread(contract: Contract) -> None:
    users: set[int] = set()
    sender = Recorder(lambda _: users.add(threading.get_ident()))
    Sending(contract, {"care-analytics.inbox": "nats://care"})(sender, *frames(100))
    assert len(users) == 1
    assert [id for ids in sender.ids("nats://care") for id in ids] == [f"0-{at}" for at in range(100)]


class TestOrder:
    URL = "https://care-analytics-inbox.fifo"

    @pytest.fixture
    def fifo(self, contract: Contract) -> Sending:
        return Sending(contract, {"care-analytics.inbox": self.URL})

    @pytest.mark.source("P17")
    def test_a_fifo_queue_gets_one_batch_at_a_time_in_order(self, fifo: Sending) -> None:
        sender = Recorder()
        fifo(sender, *frames(100))
        assert [id for ids in sender.ids(self.URL) for id in ids] == [f"0-{at}" for at in range(100)]

    @pytest.mark.source("P17")
    def test_no_event_overtakes_in_its_group(self, fifo: Sending) -> None:
        events = [event(str(at), partitionkey="odd" if at % 2 else "even") for at in range(30)]
        sender = Recorder(poison='"id":"5"', acceptance=Acceptance.AGAIN)
        done, failed = fifo(sender, message("m1", frame(pack(events))))
        # The first batch was one call; after it only the other group went on.
        delivered = [int(step.record.id) for step in done]
        assert delivered == [0, 1, 2, 3, 4, 6, 7, 8, 9, *range(10, 30, 2)]
        assert failed == {"m1"}

    @staticmethod
    def queued(*groups: str | None) -> list[QueueMessage]:
        return [QueueMessage(f"m{at}", "", 0, 1, "", group) for at, group in enumerate(groups)]

    def test_a_standard_queue_is_one_group(self) -> None:
        messages = self.queued(None, None, None)
        assert list(fifo_groups(messages, set())) == [messages]
        assert list(fifo_groups([], set())) == []

    @pytest.mark.source("P17", "N3")
    @given(
        groups=st.lists(st.sampled_from([None, "a", "b", "c"]), max_size=10), bad=st.sets(st.integers(0, 9))
    )
    def test_a_prefix_of_each_group_is_done(self, groups: list[str | None], bad: set[int]) -> None:
        messages = self.queued(*groups)
        failed: set[str] = set()
        done: list[QueueMessage] = []
        tried: set[str] = set()
        for wave in fifo_groups(messages, failed):
            for each in wave:
                tried.add(each.id)
                if int(each.id[1:]) in bad:
                    failed.add(each.id)
                else:
                    done.append(each)
        assert {each.id for each in done} | failed == {each.id for each in messages}
        for group in {group for group in groups if group}:
            members = [each for each in messages if each.group == group]
            first_bad = next((at for at, each in enumerate(members) if int(each.id[1:]) in bad), len(members))
            assert [each for each in done if each.group == group] == members[:first_bad]
            assert not {each.id for each in members[first_bad + 1 :]} & tried


class TestPacks:
    @pytest.fixture
    def sending(self, contract: Contract) -> Sending:
        return Sending(contract, most=50)

    def test_events_share_messages_to_the_limit(self, sending: Sending, contract: Contract) -> None:
        sender = Recorder()
        done, failed = sending(sender, *frames(40, 40, 21))
        assert (sender.sizes(), failed) == ([50, 50, 1], set())
        hints = {tuple(each.hints[name] for name in ("route", "events")) for _, (each, *_) in sender.calls}
        assert ("readings-to-care-analytics", "50") in hints
        # The ledger has single events.
        assert [step.record.outcome for step in done] == [Outcome.DELIVERED] * 101
        # An inbox without the setting gets one event a message.
        single = Recorder()
        Sending(contract)(single, *frames(5))
        assert single.sizes() == [1] * 5

    def test_an_urgent_event_is_a_message_of_its_own(self, sending: Sending) -> None:
        sender = Recorder()
        events = [event(f"r{at}") for at in range(5)]
        clinical = [event(f"a{at}", "org.eventplane.alarm.clinical.v1") for at in range(3)]
        done, _ = sending(sender, message("m", frame(pack([*events, *clinical]))))
        assert sender.sizes() == [5, 1, 1, 1]
        assert {step.record.priority for step in done if step.record.id[0] == "a"} == {Priority.URGENT}

    def test_only_the_event_that_sqs_refuses_for_good_is_a_dead_letter(self, sending: Sending) -> None:
        sender = Recorder(poison='"id":"0-1"')
        done, failed = sending(sender, *frames(3))
        assert (sender.sizes(), failed) == ([3, 1, 1, 1], set())
        found = {step.record.id: step.record.outcome for step in done if step.record.type != DEAD_LETTER_TYPE}
        dead, rest = Outcome.DEAD_LETTERED, Outcome.DELIVERED
        assert found == {"0-0": rest, "0-1": dead, "0-2": rest}

    def test_a_failed_pack_redelivers_its_messages(self, sending: Sending) -> None:
        sender = Recorder(poison='"id":"1-0"', acceptance=Acceptance.AGAIN)
        done, failed = sending(sender, *frames(30, 10, 30))
        assert (sender.sizes(), failed, len(done)) == ([50, 20], {"m0", "m1", "m2"}, 20)

    def test_nothing_is_sent_without_time(self, sending: Sending) -> None:
        sender = Recorder()
        assert sending(sender, *frames(3, 3), has_time=times(0)) == ([], {"m0", "m1"})
        assert sender.calls == []

    def test_full_frames_are_few_calls(self, contract: Contract) -> None:
        sender = Recorder()
        done, failed = Sending(contract, most=250)(sender, *frames(500, 500), has_time=times(1))
        assert (len(done), failed, sender.sizes()) == (1_000, set(), [250] * 4)

    def test_alarms_are_not_delayed_by_packs(self, sending: Sending) -> None:
        sender = Recorder()
        sending(sender, *frames(200), *frames(1, type=ALARM))
        assert sender.calls[0][0] != CARE


@pytest.mark.parametrize(("bound", "most"), [("MAX_DELIVERIES", 20), ("MAX_PLANNED_BYTES", 6_000)])
def test_the_oldest_are_first(cloud: Cloud, monkeypatch: pytest.MonkeyPatch, bound: str, most: int) -> None:
    monkeypatch.setattr(service, bound, most)
    first, second, third = frames(15, 15, 15)
    assert cloud.route(first, second, third) == {"m2"}
    assert {line["message_id"] for line in cloud.decisions()} == {"m0", "m1"}
    assert cloud.route(first, second, replace(third, attempt=3)) == {"m1"}
