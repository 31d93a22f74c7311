"""The demo's cloud services, over a queue in memory."""

from __future__ import annotations

from hashlib import sha256

import pytest

from eventplane.envelope import Envelope, write_event
from local.consumers import UNREADABLE, Consumers
from local.oracle import judge
from tests.fakes.sqs import FakeSqs

TIMEOUT_SECONDS = 20.0


@pytest.fixture
def sqs() -> FakeSqs:
    return FakeSqs()


def queue(sqs: FakeSqs, name: str, *bodies: str) -> str:
    url = str(sqs.create_queue(QueueName=name)["QueueUrl"])
    for body in bodies:
        sqs.send_message(QueueUrl=url, MessageBody=body)
    return url


def event(id_: str, type_: str = "org.eventplane.health.reading.v1") -> Envelope:
    return write_event({"id": id_, "source": "/homes/h/health-service", "type": type_}, {"value": 1})


def test_bodies_that_are_no_events_are_unexpected_and_do_not_stop_the_rest(sqs: FakeSqs) -> None:
    letter_without_data = event("2", "org.eventplane.deadletter.v1").json.replace('"value"', '"nothing"')
    no_time = '{"specversion":"1.0","id":"1","source":"/s","type":"t","time":"never"}'
    bad = [
        no_time,
        "no JSON",
        "[]",
        "null",
        '{"specversion":"1.0"}',
        '{"specversion":"2.0"}',
        letter_without_data,
    ]
    url = queue(sqs, "care", *bad, event("1").json)

    with Consumers(sqs, {"care-analytics": url}) as consumers:
        assert consumers.wait_until(lambda: consumers.received_total == len(bad) + 1, TIMEOUT_SECONDS)

    good = {event("1").claim}
    (verdict,) = judge({"care-analytics": good}, consumers.arrived)
    assert verdict.delivered == 1
    assert set(verdict.unexpected) == {(UNREADABLE, sha256(each.encode()).hexdigest()) for each in bad}
