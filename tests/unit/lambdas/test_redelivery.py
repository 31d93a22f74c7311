"""When a message comes again, and what the queue is answered."""

from __future__ import annotations

from typing import Any

import pytest

from lambdas.common.aws import WORST_CALL_MS
from lambdas.common.backoff import FACTOR, FIRST_S, LONGEST_S, outage_wait_s, wait_s
from lambdas.common.queue import QueueMessage, read_messages
from lambdas.common.redelivery import Redelivery, handle_each
from tests.unit.lambdas.support import Cloud, Unwilling, message, sqs_event


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
        wait = outage_wait_s(attempt, lambda: 1.0, 50)
        assert wait <= FIRST_S + away_s
        away_s += outage_wait_s(attempt, lambda: 0.0, 50)


class Recorder:
    """Remembers the waits that it is asked for."""

    def __init__(self) -> None:
        self.calls: list[list[dict[str, Any]]] = []

    def change_message_visibility_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> Any:  # noqa: N803
        self.calls.append(Entries)
        return {"Failed": [{"Id": "0", "Code": "ReceiptHandleIsInvalid"}]}


def received(*attempts: int) -> list[QueueMessage]:
    return read_messages(sqs_event(*(message(f"m{at}", "", each) for at, each in enumerate(attempts))))


def test_only_what_failed_waits_each_by_its_own_attempts() -> None:
    sqs = Recorder()
    answer = Redelivery(sqs, "https://queue", lambda: 1.0).answer(
        received(1, 2, 3), {"m0", "m2"}, lambda: 30_000
    )
    assert answer == {"batchItemFailures": [{"itemIdentifier": "m0"}, {"itemIdentifier": "m2"}]}
    (entries,) = sqs.calls
    assert [(each["ReceiptHandle"], each["VisibilityTimeout"]) for each in entries] == [
        ("handle-m0", 2),
        ("handle-m2", 50),
    ]


def test_a_reader_that_knows_the_waits_sets_them() -> None:
    sqs = Recorder()
    Redelivery(sqs, "https://queue").answer(received(1, 2), {"m0": 7, "m1": 900}, lambda: 30_000)
    (entries,) = sqs.calls
    assert [each["VisibilityTimeout"] for each in entries] == [7, 900]


def test_many_waits_are_set_ten_at_a_time_while_there_is_time() -> None:
    sqs = Recorder()
    left = iter([WORST_CALL_MS, WORST_CALL_MS, WORST_CALL_MS - 1])
    messages = received(*[1] * 25)
    answer = Redelivery(sqs, "https://queue").answer(
        messages, {each.id for each in messages}, lambda: next(left)
    )
    assert [len(entries) for entries in sqs.calls] == [10, 10]
    assert len(answer["batchItemFailures"]) == 25


def test_a_queue_that_sets_no_wait_keeps_the_message_all_the_same(cloud: Cloud) -> None:
    unwilling = Unwilling(cloud.sqs, "change_message_visibility_batch", code="AccessDenied")
    answer = Redelivery(unwilling, cloud.source).answer(received(1), {"m0"}, lambda: 30_000)
    assert answer == {"batchItemFailures": [{"itemIdentifier": "m0"}]}


def test_nothing_is_asked_for_what_went_well() -> None:
    sqs = Recorder()
    assert Redelivery(sqs, "https://queue").answer(received(1), set(), lambda: 0) == {"batchItemFailures": []}
    assert sqs.calls == []


@pytest.mark.parametrize("wait", [0.0, 1.0])
def test_a_real_queue_accepts_the_waits(cloud: Cloud, wait: float) -> None:
    cloud.sqs.send_message(QueueUrl=cloud.source, MessageBody="x")
    (taken,) = cloud.sqs.receive_message(QueueUrl=cloud.source)["Messages"]
    failed = QueueMessage("m0", "x", 0, 5, taken["ReceiptHandle"])
    Redelivery(cloud.sqs, cloud.source, lambda: wait).answer([failed], {"m0"}, lambda: 30_000)
    figures = cloud.sqs.get_queue_attributes(QueueUrl=cloud.source, AttributeNames=["All"])["Attributes"]
    assert figures["ApproximateNumberOfMessagesNotVisible"] == "1"


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
