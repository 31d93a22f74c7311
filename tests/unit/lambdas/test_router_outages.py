"""Urgent events, and what becomes of copies, while services of AWS fail, stall, or kill the router."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from types import FrameType
from typing import Any

import pytest

from eventplane.batch import pack
from eventplane.contract import Contract
from eventplane.contract.publication import cloud_destinations
from eventplane.contract.subscription import IN_FORCE_S
from lambdas.common.aws import PATIENT, QUICK
from lambdas.common.backoff import LAST_URGENT_RECEIVES, LONGEST_S, LONGEST_URGENT_S, urgent_wait_s
from lambdas.common.queue import QueueMessage
from lambdas.common.sqs import SqsSender
from lambdas.router import delivery_memory
from lambdas.router.active_contract import ActiveContract, BoundedLook, Unseen
from lambdas.router.delivery_memory import DeliveryMemory
from lambdas.router.dispatch import Dispatch
from lambdas.router.engine import Engine, build_engine
from lambdas.router.service import RouterService, TimeLimits
from tests.unit.lambdas.publishing import INTERVAL_MS, Table, changed
from tests.unit.lambdas.support import (
    ALARM,
    NOW_MS,
    READING,
    Cloud,
    Unwilling,
    event,
    frame,
    invocation,
    ledger_of,
    message,
)

pytestmark = pytest.mark.source("P4", "N1")

CENTRE, FAMILY, CARE = "alarm-centre.inbox", "family-app.inbox", "care-analytics.inbox"
SENT = message("m1", frame(pack([event("1", ALARM), event("2", READING)])))


class Process:
    """A router's process; `sqs`, `ledger_sqs` and `s3` stand for AWS where it fails."""

    def __init__(
        self,
        cloud: Cloud,
        contract: Contract,
        *,
        sqs: Any = None,
        ledger_sqs: Any = None,
        s3: Any = None,
        engine: Callable[[], Any] | None = None,
    ) -> None:
        built = build_engine(contract, "device.outbox", cloud.queues)
        self._attempts: Counter[str] = Counter()
        self.router = RouterService(
            engine=engine or (lambda: built),
            dispatch=Dispatch(SqsSender(sqs or cloud.sqs), cloud.queues),
            ledger=ledger_of(cloud, sqs=ledger_sqs, s3=s3),
            clock=lambda: NOW_MS,
        )

    def route(self, *messages: QueueMessage) -> frozenset[str]:
        """The ids of messages that come again, each with an attempt more."""
        self._attempts.update(each.id for each in messages)
        again = [replace(each, attempt=self._attempts[each.id]) for each in messages]
        return self.router.process(again, invocation())


def copies(cloud: Cloud) -> dict[str, int]:
    """How many messages each inbox has got."""
    return {address: len(found) for address in (CENTRE, FAMILY, CARE) if (found := cloud.received(address))}


def recorded(cloud: Cloud) -> list[tuple[str, str, int]]:
    """Event, destination and attempt of each line of the ledger."""
    lines = cloud.decisions()
    return sorted((each["id"], each["destination"], each["attempt"]) for each in lines)


ONCE = {CENTRE: 1, FAMILY: 1, CARE: 1}


def test_without_s3_events_arrive_once_and_are_acknowledged(cloud: Cloud, contract: Contract) -> None:
    process = Process(cloud, contract, s3=Unwilling(cloud.s3, "put_object", code="ServiceUnavailable"))
    assert process.route(SENT) == frozenset()
    assert copies(cloud) == ONCE
    assert recorded(cloud) == [("1", CENTRE, 1), ("1", FAMILY, 1), ("2", CARE, 1)]


def test_without_the_ledger_s_queue_its_lines_go_to_the_archive(cloud: Cloud, contract: Contract) -> None:
    process = Process(cloud, contract, ledger_sqs=Unwilling(cloud.sqs, "send_message_batch"))
    assert process.route(SENT) == frozenset()
    assert cloud.keys("") == [
        f"contracts/{contract.version}.json",
        "ledger/date=2026-01-01/hour=00/invocation-1.json.gz",
    ]


def test_without_queue_and_archive_a_message_comes_again_and_makes_no_copies(
    cloud: Cloud, contract: Contract
) -> None:
    sqs, s3 = Unwilling(cloud.sqs, "send_message_batch"), Unwilling(cloud.s3, "put_object")
    process = Process(cloud, contract, ledger_sqs=sqs, s3=s3)
    for _ in range(5):
        assert process.route(SENT, message("m2", frame(pack([])))) == {"m1"}
    sqs.end()
    assert process.route(SENT) == frozenset()
    assert copies(cloud) == ONCE
    # What was sent at the first attempt gets into the ledger with the last.
    assert recorded(cloud) == [("1", CENTRE, 1), ("1", FAMILY, 1), ("2", CARE, 1)]


def test_what_the_ledger_misses_is_written_with_the_next_invocation(cloud: Cloud, contract: Contract) -> None:
    sqs, s3 = Unwilling(cloud.sqs, "send_message_batch"), Unwilling(cloud.s3, "put_object")
    process = Process(cloud, contract, ledger_sqs=sqs, s3=s3)
    assert process.route(SENT) == {"m1"}
    sqs.end()
    assert process.route(message("m2", frame(event("3").json.encode()))) == frozenset()
    assert recorded(cloud) == [("1", CENTRE, 1), ("1", FAMILY, 1), ("2", CARE, 1), ("3", CARE, 1)]


def test_one_inbox_that_refuses_makes_no_copies_in_the_others(cloud: Cloud, contract: Contract) -> None:
    sqs = Unwilling(cloud.sqs, "send_message_batch", queue_urls=[cloud.queues[CARE]])
    process = Process(cloud, contract, sqs=sqs)
    for _ in range(5):
        assert process.route(SENT) == {"m1"}
    sqs.end()
    assert process.route(SENT) == frozenset()
    assert copies(cloud) == ONCE
    assert recorded(cloud) == [("1", CENTRE, 1), ("1", FAMILY, 1), ("2", CARE, 6)]


def test_a_letter_is_not_repeated_either(cloud: Cloud, contract: Contract) -> None:
    class Refusing:
        """Never takes the reading, and is too busy for the alarm."""

        def send_message_batch(self, *, QueueUrl: str, Entries: list[Any]) -> Any:  # noqa: N803
            if QueueUrl in (cloud.queues[CARE], cloud.queues[CENTRE]):
                code = "InvalidMessageContents" if QueueUrl == cloud.queues[CARE] else "Throttling"
                return {"Failed": [{"Id": each["Id"], "Code": code} for each in Entries]}
            return cloud.sqs.send_message_batch(QueueUrl=QueueUrl, Entries=Entries)

    process = Process(cloud, contract, sqs=Refusing())
    for _ in range(3):
        assert process.route(SENT) == {"m1"}
    assert len(cloud.received("operations.inbox")) == 1


def test_a_killed_router_s_batch_is_routed_by_another_process(cloud: Cloud, contract: Contract) -> None:
    class Killed(BaseException):
        pass

    class Dying:
        def send_message_batch(self, **_: Any) -> Any:
            raise Killed

    with pytest.raises(Killed):
        Process(cloud, contract, ledger_sqs=Dying()).route(SENT)
    # Nothing of it was acknowledged, so the queue gives the message to another process.
    assert Process(cloud, contract).route(SENT) == frozenset()
    assert copies(cloud) == dict.fromkeys(ONCE, 2)


def test_the_memory_of_deliveries_is_bounded_and_loses_no_record(
    cloud: Cloud, contract: Contract, monkeypatch: pytest.MonkeyPatch
) -> None:
    sqs, s3 = Unwilling(cloud.sqs, "send_message_batch"), Unwilling(cloud.s3, "put_object")
    process = Process(cloud, contract, ledger_sqs=sqs, s3=s3)
    process.router._dispatch.memory = DeliveryMemory(most=7)
    other = message("m2", frame(pack([event("3", ALARM), event("4", READING)])))
    process.route(SENT)
    process.route(other)
    sqs.end()
    assert process.route(SENT, other) == frozenset()
    # The first message was forgotten, so its events were sent a second time.
    assert copies(cloud) == {CENTRE: 3, FAMILY: 3, CARE: 3}
    assert {(id, address) for id, address, _ in recorded(cloud)} == {
        ("1", CENTRE),
        ("1", FAMILY),
        ("2", CARE),
        ("3", CENTRE),
        ("3", FAMILY),
        ("4", CARE),
    }
    assert delivery_memory.MAX_REMEMBERED >= 5_000


def test_the_memory_keeps_no_events_and_is_bounded_by_what_was_dropped_too(contract: Contract) -> None:
    memory = DeliveryMemory(most=4)
    queues = {each.address: "https://queue" for each in cloud_destinations(contract)}
    planner = build_engine(contract, "device.outbox", queues).planner
    steps = list(planner.plan(SENT, NOW_MS))
    memory.end(steps[:2], (), {"m1"}, is_written=False)
    assert memory.unwritten == [step.record for step in steps[:2]]
    # What failed at best effort has no delivery that could be forgotten with it.
    dropped = [replace(step, event=None, tried_once=True) for step in steps]
    for _ in range(3):
        memory.end(dropped, (), {"m1"}, is_written=False)
    assert len(memory.unwritten) == 4


class Hanging:
    """A table that answers when `released`."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.released = threading.Event()

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            assert self.released.wait(20)
            return getattr(self._client, name)(*arguments, **named)

        return call


@pytest.fixture
def hanging(cloud: Cloud, contract: Contract) -> Iterator[tuple[Hanging, Table, ActiveContract[Engine]]]:
    tables, client = Table(cloud, contract, now_ms=NOW_MS), Hanging(cloud.dynamodb)
    yield client, tables, tables.in_force(*[client] * 3)
    client.released.set()


def test_while_the_tables_hang_an_alarm_goes_by_the_contract_at_hand(
    cloud: Cloud, contract: Contract, hanging: tuple[Hanging, Table, ActiveContract[Engine]]
) -> None:
    client, tables, in_force = hanging
    published = changed(contract, "new", "carers.inbox", ALARM)
    tables.put(published)
    look = BoundedLook(in_force, patience_s=0.01)
    process = Process(cloud, contract, engine=look.engine)
    assert process.route(SENT) == {"m1"}
    assert copies(cloud) == {CENTRE: 1, FAMILY: 1}
    client.released.set()
    # The look goes on meanwhile, and its result is used.
    look._look.result(20)  # type: ignore[union-attr]
    assert process.route(SENT) == frozenset()
    assert copies(cloud) == {CARE: 1}
    assert len(cloud.received("carers.inbox")) == 1


def test_events_wait_once_for_a_look_that_hangs(
    hanging: tuple[Hanging, Table, ActiveContract[Engine]], monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []

    def wait(_: Any, timeout: float) -> None:
        waited.append(timeout)

    now = iter(range(100))
    monkeypatch.setattr("lambdas.router.active_contract.wait", wait)
    monkeypatch.setattr("lambdas.router.active_contract.time.monotonic", lambda: float(next(now)))
    client, _, in_force = hanging
    look = BoundedLook(in_force, patience_s=2.0)
    assert all(isinstance(look.engine(), Unseen) for _ in range(3))
    assert waited == [1.0, 0.0, 0.0]
    client.released.set()


def test_a_process_that_has_seen_the_contract_goes_on_by_it_while_tables_hang(
    contract: Contract, hanging: tuple[Hanging, Table, ActiveContract[Engine]]
) -> None:
    client, tables, in_force = hanging
    client.released.set()
    look = BoundedLook(in_force, patience_s=20)
    assert isinstance(look.engine(), Engine)
    client.released.clear()
    look._patience_s = 0.0
    tables.now_ms += INTERVAL_MS
    assert isinstance(look.engine(), Engine)
    # Until subscriptions may be in force that it does not know.
    tables.now_ms += 1_000 * IN_FORCE_S
    assert isinstance(look.engine(), Unseen)
    client.released.set()


def test_urgent_messages_wait_seconds_for_hours_and_long_at_last() -> None:
    waits = [urgent_wait_s(attempt, lambda: 0.5, 1_000) for attempt in range(1, 1_000)]
    assert waits[:5] == [2, 8, 15, 15, 15]
    assert max(waits[: 1_000 - LAST_URGENT_RECEIVES]) <= LONGEST_URGENT_S
    assert waits[-LAST_URGENT_RECEIVES + 1 :] == [LONGEST_S] * (LAST_URGENT_RECEIVES - 1)
    assert sum(waits) > 12 * 3_600


@pytest.mark.parametrize(("patience", "payload_s", "timeout_s"), [(QUICK, 1.0, 12), (PATIENT, 5.0, 30)])
def test_a_function_has_time_to_plan_and_to_send(patience: Any, payload_s: float, timeout_s: int) -> None:
    limits = TimeLimits.of(patience, payload_s)
    # A batch at its worst, the ledger's queue, and then the archive or the answer to the queue.
    assert limits.reserve_ms >= 2 * patience.worst_call_ms
    assert limits.planning_ms <= 0.7 * 1_000 * timeout_s


def test_a_look_that_ends_in_another_thread_is_never_seen_by_half(cloud: Cloud, contract: Contract) -> None:
    tables = Table(cloud, contract, now_ms=NOW_MS)
    published = changed(contract, "new", "carers.inbox", ALARM)
    tables.put(published)
    for moment in count():
        in_force = tables.in_force()
        engine, is_over = interleaved(in_force.current, in_force.look, moment)
        assert isinstance(engine, Unseen) or engine.contract.version == published.version
        if is_over:
            break
    assert moment > 10


def interleaved(call: Callable[[], Any], other: Callable[[], Any], moment: int) -> tuple[Any, bool]:
    """What `call` returns if `other` runs after so many of its instructions; whether it has fewer."""
    left = moment

    def trace(frame_: FrameType, what: str, _: Any) -> Any:
        nonlocal left
        frame_.f_trace_opcodes = True
        if what == "opcode":
            if left == 0:
                sys.settrace(None)
                other()
            left -= 1
        return trace if left >= 0 else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        result = call()
    finally:
        sys.settrace(before)
    return result, left >= 0
