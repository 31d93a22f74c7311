"""Faults that overlap leave everything whole, and strike and heal in the order of the schedule."""

from __future__ import annotations

import json
from hashlib import md5

import boto3
import pytest

from local.chaos.fault_proxy import Failure, FaultProxy, Target
from local.chaos.faults import (
    Fault,
    InjectionError,
    Injector,
    at_once,
)
from local.chaos.schedule import PlannedFault
from tests.endpoint import EndpointServer, answer


def fail() -> None:
    raise OSError("no such thing")


def test_a_fault_that_cannot_be_made_fails_the_run_by_name() -> None:
    injector = Injector(
        [PlannedFault(0.0, 0.0, "stuck", 0)], ["one"], {("stuck", 0): Fault(fail, lambda: None)}
    )
    with pytest.raises(InjectionError, match="stuck at one: no such thing"), injector:
        injector.join()


def test_what_found_nothing_to_strike_has_not_struck() -> None:
    fault = at_once(lambda: 0)
    with Injector([PlannedFault(0.0, 0.01, "kill", 0)], ["one"], {("kill", 0): fault}) as injector:
        injector.join()
    assert not injector.struck


def test_an_answer_that_is_lost_is_given_to_the_clients_repeat() -> None:
    sent = json.dumps({"MessageId": "m", "MD5OfMessageBody": md5(b"a", usedforsecurity=False).hexdigest()})
    aws = EndpointServer(answer(200, sent.encode()), answer(200, sent.encode()))
    with aws, FaultProxy(aws.url()) as proxy:
        proxy.begin(Target("sqs"), Failure.ANSWER_LOST)
        client = boto3.client(
            "sqs",
            endpoint_url=proxy.url,
            region_name="us-east-1",
            aws_access_key_id="x",
            aws_secret_access_key="x",
        )
        assert client.send_message(QueueUrl="http://queue", MessageBody="a")["MessageId"] == "m"
        proxy.end(Target("sqs"))
    assert len(aws.received) == 2
