"""AWS Lambda ends a chain of messages in which a function is called too often, and so does the simulator."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from eventplane_aws.rules import LAMBDA_CHAIN
from lambdas.common.queue import Invocation, QueueMessage
from lambdas.common.queue_function import QueueReader
from local.histories.cloud import PLANE, Cloud
from local.histories.engine import Engine
from local.histories.function import Function
from local.histories.wires import Weather
from tests.plane import shipped_contract


@dataclass
class Echo:
    """Sends each message to its own queue again."""

    cloud: Cloud
    heard: list[str] = field(default_factory=list)

    def process(self, messages: list[QueueMessage], _: Invocation) -> frozenset[str]:
        self.cloud.engine.sleep(1.0)
        for each in messages:
            self.heard.append(each.body)
            self.cloud.sqs.send_message(QueueUrl=self.cloud.work, MessageBody=each.body)
        return frozenset()


@pytest.mark.parametrize("may_recur", [False, True])
def test_a_chain_of_messages_ends_in_the_dead_letter_queue_unless_the_function_may_recur(
    may_recur: bool,
) -> None:
    engine = Engine()
    cloud = Cloud(engine, shipped_contract(), Weather(engine, Random(0)), [])
    echo = Echo(cloud)
    wired: Any = lambda _: QueueReader(echo.process)  # noqa: E731
    Function(cloud, "echo", cloud.work, wired, PLANE.downlink.reader, may_recur=may_recur)
    for body in "ab":
        cloud.sqs.send_message(QueueUrl=cloud.work, MessageBody=body)
    engine.run(600.0)
    dropped = cloud.sqs.bodies(f"{cloud.work}-dlq")
    if may_recur:
        assert len(echo.heard) > 4 * LAMBDA_CHAIN.most
        assert dropped == []
    else:
        assert sorted(dropped) == ["a", "b"]
        assert all(echo.heard.count(each) == LAMBDA_CHAIN.most for each in "ab")
