"""Where alarms go: a topic that people or pagers subscribe to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from aws_cdk import ArnFormat, Aws, Stack
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from stacks.constructs.customer_key import find_key
from stacks.environment import Environment
from stacks.findings import PLAIN_HTTP, accept
from stacks.settings import is_endpoint


class AlarmTopic(Construct):
    """The topic called `name`, with its `subscribers`: e-mail addresses and HTTPS endpoints.

    `action` makes an alarm publish to it.
    """

    def __init__(
        self, scope: Construct, id: str, *, environment: Environment, name: str, subscribers: Sequence[str]
    ) -> None:
        super().__init__(scope, id)
        self.topic = sns.Topic(
            self,
            "Topic",
            topic_name=environment.resource_name(name),
            master_key=find_key(self, environment),
            enforce_ssl=not environment.is_emulated,
        )
        self.action = actions.SnsAction(self.topic)
        self._allow_alarms(environment)
        for address in subscribers:
            kind = subscriptions.UrlSubscription if is_endpoint(address) else subscriptions.EmailSubscription
            self.topic.add_subscription(cast("Any", kind(address)))
        if environment.is_emulated:
            accept(self, "SNS3", PLAIN_HTTP)
        if environment.customer_key is None:
            accept(self, "SNS2", "Alarms cannot use a key of AWS's own; they name resources, and no event.")

    def _allow_alarms(self, environment: Environment) -> None:
        """The policy that refuses plain HTTP replaces the one by which an account's alarms may publish."""
        alarms = Stack.of(self).format_arn(
            service="cloudwatch",
            resource="alarm",
            resource_name=f"{environment.resource_name('*')}",
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
        self.topic.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[cast("iam.IPrincipal", iam.ServicePrincipal("cloudwatch.amazonaws.com"))],
                actions=["sns:Publish"],
                resources=[self.topic.topic_arn],
                conditions={
                    "StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID},
                    "ArnLike": {"aws:SourceArn": alarms},
                },
            )
        )
