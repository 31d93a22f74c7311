"""IoT rules that write to queues, and the policy by which devices publish to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aws_cdk import Aws
from aws_cdk import aws_iot as iot
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from eventplane.topics import basic_ingest_topic, device_topic, urgent_rule
from stacks.constructs.permissions import allow_key, arn, service_role
from stacks.constructs.queues import allow_send
from stacks.plane_stack import environment_of

_SQL_VERSION: Final = "2016-03-23"

_THING: Final = "${iot:Connection.Thing.ThingName}"
"""The name of the thing whose certificate opened the connection; a client cannot choose it."""


def topic_rule(
    scope: Construct,
    *,
    name: str,
    description: str,
    sql: str,
    queues: Mapping[str, sqs.IQueue],
    errors: sqs.IQueue,
) -> None:
    """Make the rule called `name` in `scope`. It writes to each of `queues`, by its purpose.

    What a queue does not take goes to `errors`. Every action has a role of its own, lent to this rule only.
    """

    def send(purpose: str, queue: sqs.IQueue) -> iot.CfnTopicRule.ActionProperty:
        role = service_role(
            scope,
            f"{purpose}Role",
            service="iot",
            statements=[allow_send(queue), *allow_key(scope)],
            trust_conditions={
                "StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID},
                "ArnEquals": {"aws:SourceArn": arn(scope, "iot", f"rule/{name}")},
            },
        )
        return iot.CfnTopicRule.ActionProperty(
            sqs=iot.CfnTopicRule.SqsActionProperty(
                queue_url=queue.queue_url, role_arn=role.role_arn, use_base64=False
            )
        )

    iot.CfnTopicRule(
        scope,
        "Rule",
        rule_name=name,
        topic_rule_payload=iot.CfnTopicRule.TopicRulePayloadProperty(
            description=description,
            aws_iot_sql_version=_SQL_VERSION,
            sql=sql,
            actions=[send(purpose, queue) for purpose, queue in queues.items()],
            error_action=send("Error", errors),
        ),
    )


def device_policy(scope: Construct, rule: str) -> str:
    """Make the IoT policy that every device's certificate gets, and return its name.

    A device may be itself, fill its outbox by the ingest `rule` and the urgent one, and read its inbox.
    """
    inbox = device_topic(_THING, "inbox")
    name = environment_of(scope).resource_name("device")

    topics = [f"topic/{basic_ingest_topic(each, _THING)}" for each in (rule, urgent_rule(rule))]
    iot_policy(
        scope,
        "Policy",
        name,
        {
            **allow_iot(scope, "Connect", f"client/{_THING}"),
            # Only with a certificate that is attached to the thing of this name.
            "Condition": {"Bool": {"iot:Connection.Thing.IsAttached": "true"}},
        },
        allow_iot(scope, "Publish", *topics),
        allow_iot(scope, "Subscribe", f"topicfilter/{inbox}"),
        allow_iot(scope, "Receive", f"topic/{inbox}"),
    )
    return name


def iot_policy(scope: Construct, id: str, name: str, *statements: Mapping[str, Any]) -> iot.CfnPolicy:
    """Return a policy for certificates, called `name`."""
    document = {"Version": "2012-10-17", "Statement": list(statements)}
    return iot.CfnPolicy(scope, id, policy_name=name, policy_document=document)


def allow_iot(scope: Construct, action: str, *resources: str) -> dict[str, Any]:
    """Return a statement of such a policy that allows `action` (`Publish`) on `resources` (`topic/...`)."""
    arns = [arn(scope, "iot", resource) for resource in resources]
    return {"Effect": "Allow", "Action": f"iot:{action}", "Resource": arns}
