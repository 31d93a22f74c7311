"""Where alarms go: one topic, to which people and pagers subscribe."""

from __future__ import annotations

from typing import Any, cast

from aws_cdk import ArnFormat, Aws, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from stacks.constructs.customer_key import find_key
from stacks.constructs.watch import Watch
from stacks.environment import Environment
from stacks.findings import PLAIN_HTTP, accept


class AlarmTopic(Construct):
    """The topic, with the environment's e-mail addresses; `alarm` makes an alarm that tells it."""

    def __init__(self, scope: Construct, id: str, *, environment: Environment) -> None:
        super().__init__(scope, id)
        self.topic = sns.Topic(
            self,
            "Topic",
            topic_name=environment.resource_name("alarms"),
            master_key=find_key(self, environment),
            enforce_ssl=not environment.is_emulated,
        )
        self._action = cast("cloudwatch.IAlarmAction", actions.SnsAction(self.topic))
        self._allow_alarms(environment)
        for address in environment.alarm_emails:
            self.topic.add_subscription(cast("Any", subscriptions.EmailSubscription(address)))
        if environment.is_emulated:
            accept(self, "SNS3", PLAIN_HTTP)
        if environment.customer_key is None:
            accept(self, "SNS2", "Alarms cannot use a key of AWS's own; they name resources, and no event.")

    def alarm(self, scope: Construct, watch: Watch) -> cloudwatch.Alarm:
        """The alarm of `watch`, which also tells when it is over."""
        missing, operator = cloudwatch.TreatMissingData, cloudwatch.ComparisonOperator
        alarm = cloudwatch.Alarm(
            scope,
            watch.name.replace("_", "-").replace(".", "-"),
            alarm_name=watch.name,
            alarm_description=watch.remedy,
            metric=cast("cloudwatch.IMetric", watch.metric),
            threshold=watch.threshold,
            comparison_operator=operator.LESS_THAN_THRESHOLD
            if watch.is_least
            else operator.GREATER_THAN_THRESHOLD,
            evaluation_periods=watch.periods,
            treat_missing_data=missing.BREACHING if watch.is_silence_bad else missing.NOT_BREACHING,
        )
        alarm.add_alarm_action(self._action)
        alarm.add_ok_action(self._action)
        return alarm

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
