"""Arrivals are recorded before they are acknowledged, and read back by the run."""

import json
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from eventplane.device_reports import MANIFEST
from eventplane.envelope import write_event
from local.chaos import consumer
from local.chaos.arrivals import Arrivals, ArrivalWriter
from local.consumers import UNREADABLE


def event(id: str, type: str = "org.eventplane.activity.motion.v1") -> str:
    return write_event({"id": id, "source": "/homes/a/s", "type": type}, {}).json


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "care.jsonl"


@pytest.mark.source("P-W9")
def test_each_event_counts_once_and_its_repetition_as_one(path: Path) -> None:
    writer, arrivals = ArrivalWriter(path), Arrivals(path)
    arrivals.refresh()
    assert not arrivals.first
    writer.write([event("1"), event("2")])
    arrivals.refresh()
    writer.write([event("1"), event("m", MANIFEST)])
    arrivals.refresh()
    assert list(arrivals.first) == [("/homes/a/s", "1"), ("/homes/a/s", "2")]
    assert arrivals.duplicates == 1
    assert arrivals.again == {("/homes/a/s", "1"): 1}
    assert list(arrivals.arrived.reports) == [("/homes/a/s", "m")]


def test_a_torn_line_counts_for_nothing_and_is_cut_off_by_the_next_writer(path: Path) -> None:
    ArrivalWriter(path).write([event("1"), event("2")])
    path.write_bytes(path.read_bytes()[:-5])
    arrivals = Arrivals(path)
    arrivals.refresh()
    assert len(arrivals.first) == 1
    ArrivalWriter(path).write([event("3")])
    arrivals.refresh()
    assert [id for _, id in arrivals.first] == ["1", "3"]
    assert not arrivals.duplicates


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
