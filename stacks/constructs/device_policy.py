"""What a device may do at IoT Core: be itself, fill its outbox, read its inbox. Nothing else."""

from __future__ import annotations

from typing import Any, Final

from aws_cdk import Stack
from aws_cdk import aws_iot as iot
from constructs import Construct

from eventplane.topics import basic_ingest_topic, device_topic, urgent_rule
from stacks.environment import Environment

THING: Final = "${iot:Connection.Thing.ThingName}"
"""The name of the thing whose certificate opened the connection; a client cannot choose it."""


class DevicePolicy(Construct):
    """The IoT policy that every device's certificate gets. `rule` names the ingest rule; the urgent
    one's name follows from it."""

    def __init__(self, scope: Construct, id: str, *, environment: Environment, rule: str) -> None:
        super().__init__(scope, id)
        inbox = device_topic(THING, "inbox")
        self.name = environment.resource_name("device")
        self.policy = iot.CfnPolicy(
            self,
            "Policy",
            policy_name=self.name,
            policy_document={
                "Version": "2012-10-17",
                "Statement": [
                    {
                        **self._allow("iot:Connect", f"client/{THING}"),
                        # Only with a certificate that is attached to the thing of this name.
                        "Condition": {"Bool": {"iot:Connection.Thing.IsAttached": "true"}},
                    },
                    self._allow(
                        "iot:Publish",
                        *(f"topic/{basic_ingest_topic(each, THING)}" for each in (rule, urgent_rule(rule))),
                    ),
                    self._allow("iot:Subscribe", f"topicfilter/{inbox}"),
                    self._allow("iot:Receive", f"topic/{inbox}"),
                ],
            },
        )

    def _allow(self, action: str, *resources: str) -> dict[str, Any]:
        stack = Stack.of(self)
        arns = [stack.format_arn(service="iot", resource=resource) for resource in resources]
        return {"Effect": "Allow", "Action": action, "Resource": arns}
