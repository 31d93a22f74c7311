"""The canary: a function that sends an alarm as a device does, and waits for it in an inbox of its own."""

from __future__ import annotations

from typing import Final

from aws_cdk import Stack
from constructs import Construct

from eventplane.canary import CANARY, CANARY_CLIENT
from eventplane.contract import Contract
from eventplane.function_settings import CanarySettings
from eventplane.topics import basic_ingest_topic, urgent_rule
from stacks.constructs.every_minute import EveryMinute
from stacks.constructs.function_assets import DependenciesLayer, function_code
from stacks.constructs.ingest_rule import ingest_rule_name
from stacks.constructs.python_function import PythonFunction
from stacks.constructs.queue_pair import find_channel_queue
from stacks.constructs.service_role import allow
from stacks.environment import Environment
from stacks.findings import accept
from stacks.settings import FunctionSize

FOLDER: Final = "canary"

# It mostly waits. The next alarm begins a minute later; no queue feeds it: the rest is not used.
_SIZE: Final = FunctionSize(memory_mib=256, timeout_s=58)


class Canary(Construct):
    """May connect under its own client id, publish to the urgent rule, and read its inbox.

    It counts the messages of all queues of the environment, and reads none of theirs.
    """

    def __init__(self, scope: Construct, id: str, *, environment: Environment, contract: Contract) -> None:
        super().__init__(scope, id)
        inbox = find_channel_queue(
            self, "Inbox", environment=environment, channel=contract.participants[CANARY].inbox
        )
        topic = basic_ingest_topic(urgent_rule(ingest_rule_name(environment)), CANARY)
        prefix = environment.resource_name("")
        stack = Stack.of(self)
        queues = stack.format_arn(service="sqs", resource=f"{prefix}*")
        function = PythonFunction(
            self,
            "Function",
            environment=environment,
            name=CANARY,
            folder=FOLDER,
            code=function_code(FOLDER),
            layer=DependenciesLayer(self, "Dependencies", environment=environment).version,
            size=_SIZE,
            source=None,
            statements=[
                allow(["iot:Connect"], [stack.format_arn(service="iot", resource=f"client/{CANARY_CLIENT}")]),
                allow(["iot:Publish"], [stack.format_arn(service="iot", resource=f"topic/{topic}")]),
                allow(["iot:DescribeEndpoint", "sqs:ListQueues"], ["*"]),
                allow(["sqs:GetQueueAttributes"], [queues]),
                allow(["sqs:ReceiveMessage", "sqs:DeleteMessage"], [inbox.queue_arn]),
            ],
            variables=CanarySettings(
                ingest_topic=topic, inbox_queue=inbox.queue_url, queue_prefix=prefix
            ).variables(),
        )
        self.function = function.function
        arn = f"arn:<AWS::Partition>:sqs:<AWS::Region>:<AWS::AccountId>:{prefix}*"
        accept(
            self, f"IAM5[Resource::{arn}]", "It counts what lies in every queue, also in those made later."
        )
        accept(self, "IAM5[Resource::*]", "These two actions have no resources to name.")
        settings = environment.alarms
        EveryMinute(
            self,
            "Schedule",
            environment=environment,
            name=CANARY,
            function=self.function,
            inputs=[{"do": "alarm"}, {"do": "queues"}],
            rates=[settings.canary_every_min, settings.queues_every_min],
            is_enabled=settings.is_canary_scheduled,
        )
