"""When a message comes again, and what the queue is answered."""

from __future__ import annotations

import pytest

from lambdas.common.aws import WORST_CALL_MS
from lambdas.common.backoff import FACTOR, FIRST_S, LONGEST_S, outage_wait_s, wait_s
from lambdas.common.queue import QueueMessage, read_messages
from lambdas.common.redelivery import Redelivery, handle_each
from tests.fakes.faults import FailingClient
from tests.unit.lambdas.support import Cloud, failures, message, sqs_event


def test_the_wait_grows_up_to_its_limit_and_is_never_the_same_for_all() -> None:
    longest = [wait_s(attempt, lambda: 1.0) for attempt in range(1, 8)]
    assert longest == [FIRST_S, FIRST_S * FACTOR, FIRST_S * FACTOR**2, FIRST_S * FACTOR**3, *[LONGEST_S] * 3]
    assert [wait_s(attempt, lambda: 0.0) for attempt in (1, 2, 9)] == [1, 5, 450]
    assert wait_s(1_000, lambda: 0.5) == 675


@pytest.mark.parametrize("max_receives", [5, 50, 1_000])
def test_an_outage_of_an_hour_makes_no_dead_letters(max_receives: int) -> None:
    shortest = [outage_wait_s(each, lambda: 0.0, max_receives) for each in range(1, max_receives + 1)]
    # Fifty, as an outbox has by default, bridge far more.
    assert sum(shortest) >= 3_600 * (1 if max_receives < 50 else 4)


def test_after_an_outage_messages_wait_for_less_time_than_it_took() -> None:
    away_s = 0
    for attempt in range(1, 47):
        assert outage_wait_s(attempt, lambda: 1.0, 50) <= FIRST_S + away_s
        away_s += outage_wait_s(attempt, lambda: 0.0, 50)


@pytest.fixture
def batch(cloud: Cloud) -> list[QueueMessage]:
    """25 messages in flight: m1 at its first attempt, m2 at its second, and so on."""
    for at in range(25):
        cloud.sqs.send_message(QueueUrl=cloud.source, MessageBody=str(at))
    handles = [
        each["ReceiptHandle"]
        for _ in range(3)
        for each in cloud.sqs.receive_message(QueueUrl=cloud.source, MaxNumberOfMessages=10)["Messages"]
    ]
    records = sqs_event(*(message(f"m{at}", "", at) for at in range(1, 26)))
    for record, handle in zip(records["Records"], handles, strict=True):
        record["receiptHandle"] = handle
    return read_messages(records)


def waits(cloud: Cloud) -> list[float]:
    """For how long each message is hidden, seconds."""
    return [(each.visible_ms - cloud.clock()) / 1_000 for each in cloud.sqs.queue(cloud.source).messages]


def test_only_what_failed_waits_each_by_its_own_attempts(cloud: Cloud, batch: list[QueueMessage]) -> None:
    redelivery = Redelivery(cloud.sqs, cloud.source, lambda: 1.0)
    assert redelivery.answer(batch, {"m1", "m3"}, lambda: 30_000) == failures("m1", "m3")
    assert waits(cloud) == [2, 30, 50, *[30] * 22]
    # A reader that knows the waits sets them, up to the longest.
    redelivery.answer(batch, {"m1": 7, "m2": 900}, lambda: 30_000)
    assert waits(cloud)[:3] == [7, 900, 50]


def test_many_waits_are_set_ten_at_a_time_while_there_is_time(
    cloud: Cloud, batch: list[QueueMessage]
) -> None:
    left = iter([WORST_CALL_MS, WORST_CALL_MS, WORST_CALL_MS - 1])
    redelivery = Redelivery(cloud.sqs, cloud.source, lambda: 1.0)
    ids = [each.id for each in batch]
    assert redelivery.answer(batch, set(ids), lambda: next(left)) == failures(*ids)
    assert waits(cloud)[20:] == [30] * 5 != waits(cloud)[15:20]


def test_a_queue_that_sets_no_wait_keeps_the_message_all_the_same(
    cloud: Cloud, batch: list[QueueMessage]
) -> None:
    unwilling = FailingClient(cloud.sqs, "change_message_visibility_batch", code="AccessDenied")
    unknown = [QueueMessage("m1", "", 0, 1, receipt="gone")]
    for sqs, messages in ((unwilling, batch), (cloud.sqs, unknown)):
        assert Redelivery(sqs, cloud.source).answer(messages, {"m1"}, lambda: 30_000) == failures("m1")
    unwilling.asked.clear()
    assert Redelivery(unwilling, cloud.source).answer(batch, set(), lambda: 0) == failures()
    assert unwilling.asked == []


@pytest.mark.source("P4", "P15")
def test_no_message_takes_another_with_it_and_none_is_begun_without_time() -> None:
    handled: list[str] = []

    def handle(each: QueueMessage) -> bool:
        handled.append(each.id)
        if each.id == "defect":
            raise KeyError(each.id)
        return each.id != "not done"

    messages = [message(id, "") for id in ("done", "defect", "not done", "last", "too late")]
    failed = handle_each(messages, handle, lambda: len(handled) < 4)
    assert failed == {"defect", "not done", "too late"}
    assert handled == ["done", "defect", "not done", "last"]
    assert handle_each([message("done", "")], handle) == frozenset()
