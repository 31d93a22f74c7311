"""The look at all queues: dead letters, and queues that nobody empties."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber

from lambdas.canary.queues import Queues
from lambdas.common.metrics import metrics
from tests.unit.lambdas.canary.conftest import PREFIX
from tests.unit.lambdas.support import NOW_MS, Unwilling
from tests.unit.queues import create_queue


class Time:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def queues(sqs: Any, time: Time) -> Queues:
    return Queues(sqs=sqs, prefix=PREFIX, clock=time)


def fill(sqs: Any, name: str, number: int = 1) -> str:
    url = create_queue(name)
    for _ in range(number):
        sqs.send_message(QueueUrl=url, MessageBody="{}")
    return url


def written() -> dict[str, list[float]]:
    return {name: each["Value"] for name, each in metrics.provider.metric_set.items()}


def test_dead_letters_of_all_queues_are_one_figure(sqs: Any, queues: Queues) -> None:
    fill(sqs, f"{PREFIX}tap-dlq", 2)
    fill(sqs, f"{PREFIX}watch-dlq", 1)
    fill(sqs, "eventplane-prod-tap-dlq", 4)
    look = queues.look()
    assert look.dead_letters == {f"{PREFIX}tap-dlq": 2, f"{PREFIX}watch-dlq": 1}
    assert (written()["DeadLetters"], look.backlog_s) == ([3], {})


def test_an_empty_plane_says_that_it_was_looked_at(queues: Queues) -> None:
    queues.look()
    assert written() == {"DeadLetters": [0], "Backlog": [0]}


def test_a_queue_that_is_never_empty_grows_a_backlog_until_somebody_reads_it(
    sqs: Any, queues: Queues, time: Time
) -> None:
    url = fill(sqs, f"{PREFIX}tap")
    fill(sqs, f"{PREFIX}carers-replies")
    assert queues.look().backlog_s == {f"{PREFIX}tap": 0}
    time.now_ms += 900_000
    assert queues.look().backlog_s == {f"{PREFIX}tap": 900}
    sqs.purge_queue(QueueUrl=url)
    time.now_ms += 300_000
    assert queues.look().backlog_s == {}
    sqs.send_message(QueueUrl=url, MessageBody="{}")
    time.now_ms += 300_000
    assert queues.look().backlog_s == {f"{PREFIX}tap": 0}


def test_a_look_that_fails_is_no_quiet_plane(sqs: Any, time: Time) -> None:
    fill(sqs, f"{PREFIX}tap")
    queues = Queues(sqs=Unwilling(sqs, "get_queue_attributes"), prefix=PREFIX, clock=time)
    with pytest.raises(ClientError):
        queues.look()
    assert written() == {}


def test_a_queue_that_was_just_deleted_does_not_hide_the_others(sqs: Any, time: Time) -> None:
    fill(sqs, f"{PREFIX}tap-dlq", 2)
    gone = fill(sqs, f"{PREFIX}watch-dlq")
    listing = sqs.list_queues(QueueNamePrefix=PREFIX)
    sqs.delete_queue(QueueUrl=gone)
    with Stubber(sqs) as stub:
        # The listing is from before the deletion, and SQS gives a token only to those who ask for pages.
        stub.add_response("list_queues", listing, {"QueueNamePrefix": PREFIX, "MaxResults": 1_000})
        urls = list(Queues(sqs=sqs, prefix=PREFIX, clock=time)._urls())
    queues = Queues(sqs=sqs, prefix=PREFIX, clock=time)
    queues._urls = lambda: iter(urls)
    assert queues.look().dead_letters == {f"{PREFIX}tap-dlq": 2}
