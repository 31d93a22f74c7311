"""How planned deliveries are sent: in parallel, message by message, and in order where a queue keeps one."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from eventplane.batch import pack
from eventplane.contract import Contract, compile_contract
from eventplane.contract.publication import cloud_destinations
from eventplane.envelope import Envelope
from lambdas.common.queue import QueueMessage
from lambdas.common.sender import TAKEN, Answer, Fate, Message
from lambdas.router import service
from lambdas.router.dispatch import THREADS, Dispatch
from lambdas.router.engine import build_engine
from lambdas.router.planner import Step
from tests.unit.lambdas.support import (
    ALARM,
    NOW_MS,
    READING,
    Cloud,
    Run,
    event,
    frame,
    invocation,
    ledger_of,
    message,
    with_packs,
)

LIMIT_S = 20
"""How long a test waits for what has to happen, seconds."""


class Recorder:
    """Takes every message; `before` is called with the URL before that."""

    def __init__(self, before: Callable[[str], Any] = str) -> None:
        self.calls: list[tuple[str, list[str]]] = []
        self._before = before

    def send(self, url: str, batch: Sequence[Message]) -> list[Answer]:
        self._before(url)
        self.calls.append((url, [json.loads(each.body)["id"] for each in batch]))
        return [TAKEN] * len(batch)


class Sending:
    """Sends what the device router plans for `messages`; care-analytics takes `most` events a message."""

    def __init__(self, contract: Contract, queues: dict[str, str] | None = None, most: int = 1) -> None:
        contract = with_packs(contract, most)
        self.queues = {each.address: f"https://{each.address}" for each in cloud_destinations(contract)}
        self.queues |= queues or {}
        self._engine = build_engine(contract, "device.outbox", self.queues)

    def steps(self, *messages: QueueMessage) -> list[Step]:
        return [step for each in messages for step in self._engine.planner.plan(each, NOW_MS)]

    def send(
        self, sender: Any, *messages: QueueMessage, has_time: Callable[[], bool] = lambda: True
    ) -> tuple[list[Step], set[str]]:
        dispatch = Dispatch(sender, self.queues)
        time = Mock(may_start=has_time, answers_s=lambda: LIMIT_S)
        return dispatch.send(self._engine, self.steps(*messages), NOW_MS, time)


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


def test_so_many_calls_are_in_flight_at_a_time_and_no_more(contract: Contract) -> None:
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
    done, failed = Sending(contract).send(sender, *frames(20 * THREADS))
    assert (len(done), failed, most, len(sender.calls)) == (20 * THREADS, set(), THREADS, 2 * THREADS)


@pytest.mark.source("P4")
def test_a_message_whose_sends_are_done_is_done_although_time_ends(contract: Contract) -> None:
    done, failed = Sending(contract).send(Recorder(), *frames(100, 100, 100, 100), has_time=times(25))
    assert failed == {"m2", "m3"}
    # Only the message at the end of the time is half sent.
    assert {step.record.message_id for step in done} == {"m0", "m1", "m2"}


def test_when_time_ends_no_messages_are_half_sent_but_those_in_flight(contract: Contract) -> None:
    done, failed = Sending(contract).send(Recorder(), *frames(*[1_000] * 10), has_time=times(521))
    assert len(failed) == 5
    assert {step.record.message_id for step in done} & failed == {"m5"}


@pytest.mark.source("P4", "N1")
def test_a_call_that_does_not_end_leaves_the_ledger_its_time(
    cloud: Cloud, contract: Contract, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = threading.Event()

    def hang(url: str) -> None:
        if url.startswith("nats:"):
            assert end.wait(LIMIT_S)

    queues = {**cloud.queues, "care-analytics.inbox": "nats://care-analytics.inbox"}
    engine = build_engine(contract, "device.outbox", queues)
    sender = Recorder(hang)
    dispatch = Dispatch(sender, queues)
    router = service.RouterService(
        engine=lambda: engine, dispatch=dispatch, ledger=ledger_of(cloud), clock=lambda: NOW_MS
    )
    stuck, alarm = frames(10)[0], message("m1", frame(event("1", ALARM).json.encode()))
    # When a call starts, and when its answer is waited for.
    seconds = iter([0.0, 30.0] * 2)
    with monkeypatch.context() as patched:
        patched.setattr("lambdas.router.dispatch.monotonic", lambda: next(seconds))
        # The second call waits for the thread of the first, and is not made when that goes on.
        assert router.process([stuck], invocation()) == {"m0"}
        assert router.process([stuck], invocation()) == {"m0"}
    assert router.process([alarm], invocation()) == frozenset()
    assert {line["id"] for line in cloud.decisions()} == {"1"}
    end.set()
    dispatch._threads["nats"].shutdown()
    assert [ids for url, ids in sender.calls if url.startswith("nats:")] == [[f"0-{at}" for at in range(10)]]


@pytest.mark.source("P13", "N1")
def test_an_alarm_does_not_wait_for_a_destination_of_another_protocol(contract: Contract) -> None:
    alarmed = threading.Event()

    def wait_for_alarm(url: str) -> None:
        if url.startswith("nats:"):
            assert alarmed.wait(LIMIT_S)
        elif url == "https://alarm-centre.inbox":
            alarmed.set()

    document = json.loads(contract.canonical)
    first = {"filter": {"exact": {"type": READING}}, "to": "family-app.inbox"}
    plane = compile_contract({**document, "routes": {"a": first, **document["routes"]}}, "test")
    sending = Sending(plane, {"family-app.inbox": "nats://family-app.inbox"})
    done, failed = sending.send(
        Recorder(wait_for_alarm), message("m1", frame(pack([event("1"), event("2", ALARM)])))
    )
    assert (len(done), failed) == (4, set())


def test_a_sender_of_another_protocol_is_used_by_one_thread(contract: Contract) -> None:
    users: set[int] = set()
    sending = Sending(contract, {"care-analytics.inbox": "nats://care-analytics.inbox"})
    sender = Recorder(lambda _: users.add(threading.get_ident()))
    sending.send(sender, *frames(100))
    assert (len(users), [ids[0] for _, ids in sender.calls]) == (1, [f"0-{at}" for at in range(0, 100, 10)])


def fifo(contract: Contract) -> Sending:
    return Sending(contract, {"care-analytics.inbox": "https://care-analytics-inbox.fifo"})


@pytest.mark.source("P17")
def test_a_fifo_queue_gets_one_batch_at_a_time_in_order(contract: Contract) -> None:
    sender = Recorder()
    fifo(contract).send(sender, *frames(100))
    assert [each for _, ids in sender.calls for each in ids] == [f"0-{at}" for at in range(100)]


@pytest.mark.source("P17")
def test_in_a_fifo_queue_nothing_overtakes_what_failed_in_its_group(contract: Contract) -> None:
    class Refusing(Recorder):
        """Refuses one event."""

        def send(self, url: str, batch: Sequence[Message]) -> list[Answer]:
            taken = super().send(url, batch)
            again = Answer(Fate.AGAIN, "busy")
            return [
                again if json.loads(each.body)["id"] == "5" else answer
                for each, answer in zip(batch, taken, strict=True)
            ]

    def keyed(number: int) -> Envelope:
        return event(str(number), READING, partitionkey="odd" if number % 2 else "even")

    sender = Refusing()
    sent = message("m1", frame(pack([keyed(number) for number in range(30)])))
    done, failed = fifo(contract).send(sender, sent)
    delivered = [int(step.record.id) for step in done]
    # The first batch was one call; after it only the other group went on.
    assert delivered == [0, 1, 2, 3, 4, 6, 7, 8, 9, *range(10, 30, 2)]
    assert failed == {"m1"}


def test_the_messages_of_an_invocation_are_bounded_by_their_deliveries(
    cloud: Cloud, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MAX_DELIVERIES", 20)
    assert run(*frames(15, 15, 15)) == {"m2"}
    assert {line["message_id"] for line in cloud.decisions()} == {"m0", "m1"}


def test_the_messages_of_an_invocation_are_bounded_by_their_bytes(
    cloud: Cloud, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MAX_PLANNED_BYTES", 100_000)
    # Each is a publish of a few hundred bytes.
    large = [
        message(f"m{at}", frame(pack([event(f"{at}-{number}-{'a' * 20_000}") for number in range(3)])))
        for at in range(3)
    ]
    assert run(*large) == {"m2"}


def test_what_came_most_often_goes_first(cloud: Cloud, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_DELIVERIES", 10)
    first, second, third = frames(10, 10, 10)
    assert run(first, replace(second, attempt=3), third) == {"m0", "m2"}
