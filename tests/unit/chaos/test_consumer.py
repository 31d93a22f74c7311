"""A call that fails ends no reader, and loses nothing."""

import json
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from local.chaos import consumer
from local.chaos.arrivals import Arrivals, ArrivalWriter
from local.consumers import UNREADABLE


class OverError(Exception):
    """The queue has no more to say."""


class Queue:
    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.deleted = 0

    def receive_message(self, **_: Any) -> Any:
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def delete_message_batch(self, *, Entries: list[Any], **_: Any) -> None:  # noqa: N803 - boto3's name
        self.deleted += len(Entries)


def test_a_reader_goes_on_past_calls_that_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "_PAUSE_S", 0)
    body = '{"specversion": "1.0", "id": "1", "source": "/homes/a/s", "type": "t"}'
    queue = Queue(
        EndpointConnectionError(endpoint_url="http://127.0.0.1:1"),
        ClientError({"Error": {"Code": "Throttling"}}, "ReceiveMessage"),
        {"Messages": [{"Body": body, "ReceiptHandle": "r"}]},
        OverError(),
    )
    with pytest.raises(OverError):
        consumer.read(queue, "url", ArrivalWriter(tmp_path / "s.jsonl"))
    arrivals = Arrivals(tmp_path / "s.jsonl")
    arrivals.refresh()
    assert list(arrivals.first) == [("/homes/a/s", "1")]
    assert queue.deleted == 1


def test_the_events_of_a_packed_message_count_one_by_one(tmp_path: Path) -> None:
    bodies = [
        json.dumps([{"specversion": "1.0", "id": id, "source": "/a", "type": "t"} for id in "12"]),
        "H4sI no batch",
    ]
    queue = Queue({"Messages": [{"Body": body, "ReceiptHandle": "r"} for body in bodies]}, OverError())
    with pytest.raises(OverError):
        consumer.read(queue, "url", ArrivalWriter(tmp_path / "s.jsonl"))
    arrivals = Arrivals(tmp_path / "s.jsonl")
    arrivals.refresh()
    assert [first for first, _ in arrivals.first] == ["/a", "/a", UNREADABLE]
    assert queue.deleted == 2
