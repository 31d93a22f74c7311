"""The canary: a function that sends an alarm as a device does, and waits for it in an inbox of its own."""

from __future__ import annotations

from typing import Final

from constructs import Construct

from eventplane.contract import Contract
from eventplane.function_settings import CanarySettings
from eventplane.names import CANARY, CANARY_CLIENT
from eventplane.topics import basic_ingest_topic, urgent_rule
from stacks.constructs.permissions import accept, accept_wildcard, allow, arn
from stacks.constructs.python_function import PythonFunction
from stacks.constructs.queues import find_channel_queue
from stacks.constructs.schedule import Schedule
from stacks.names import ingest_rule_name
from stacks.plane_stack import environment_of
from stacks.settings import FunctionSize

# It mostly waits. The next alarm begins a minute later.
_SIZE: Final = FunctionSize(memory_mib=256, timeout_s=58)


def canary(scope: Construct, contract: Contract) -> None:
    """Make the canary.

    It may connect under its own client id, publish to the urgent rule, and read its inbox. It counts the
    messages of all queues of the environment, and reads none of theirs.
    """
    holder = Construct(scope, "Canary")
    environment = environment_of(holder)
    inbox = find_channel_queue(holder, "Inbox", contract.participants[CANARY].inbox)
    topic = basic_ingest_topic(urgent_rule(ingest_rule_name(environment.name)), CANARY)
    prefix = environment.resource_name("")
    function = PythonFunction(
        holder,
        "Function",
        name=CANARY,
        folder=CANARY,
        size=_SIZE,
        statements=[
            allow(["iot:Connect"], [arn(holder, "iot", f"client/{CANARY_CLIENT}")]),
            allow(["iot:Publish"], [arn(holder, "iot", f"topic/{topic}")]),
            allow(["iot:DescribeEndpoint", "sqs:ListQueues"], ["*"]),
            allow(["sqs:GetQueueAttributes"], [arn(holder, "sqs", f"{prefix}*")]),
            allow(["sqs:ReceiveMessage", "sqs:DeleteMessage"], [inbox.queue_arn]),
        ],
        settings=CanarySettings(ingest_topic=topic, inbox_queue=inbox.queue_url, queue_prefix=prefix),
    ).function
    accept_wildcard(holder, "sqs", f"{prefix}*", "It counts what lies in every queue, also in later ones.")
    accept(holder, "IAM5[Resource::*]", "These two actions have no resources to name.")
    settings = environment.alarms
    Schedule(
        holder,
        "Schedule",
        name=CANARY,
        function=function,
        inputs=[{"do": "alarm"}, {"do": "queues"}],
        rates=[settings.canary_every_min, settings.queues_every_min],
        is_enabled=settings.is_canary_scheduled,
    )
