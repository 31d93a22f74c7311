"""Actions of IoT rules, each with a role of its own."""

from __future__ import annotations

from aws_cdk import ArnFormat, Aws, Stack
from aws_cdk import aws_iot as iot
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from stacks.constructs.customer_key import allow_key
from stacks.constructs.durable_queue import allow_send
from stacks.constructs.service_role import service_role
from stacks.environment import Environment


def send_to(
    scope: Construct, purpose: str, *, environment: Environment, rule: str, queue: sqs.IQueue
) -> iot.CfnTopicRule.ActionProperty:
    """An action that writes to `queue`; its role, named by `purpose`, is lent to `rule` only."""
    rule_arn = Stack.of(scope).format_arn(
        service="iot", resource="rule", resource_name=rule, arn_format=ArnFormat.SLASH_RESOURCE_NAME
    )
    role = service_role(
        scope,
        f"{purpose}Role",
        service="iot",
        statements=[allow_send(environment=environment, queues=[queue]), *allow_key(environment)],
        trust_conditions={
            "StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID},
            "ArnEquals": {"aws:SourceArn": rule_arn},
        },
    )
    return iot.CfnTopicRule.ActionProperty(
        sqs=iot.CfnTopicRule.SqsActionProperty(
            queue_url=queue.queue_url, role_arn=role.role_arn, use_base64=False
        )
    )
