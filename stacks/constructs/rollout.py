"""Roll-out of new versions of functions: an alias moves step by step, and back when an alarm fires."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from aws_cdk import Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_codedeploy as codedeploy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from stacks.constructs.permissions import accept_wildcard, allow, arn, service_role
from stacks.plane_stack import environment_of

LIVE: Final = "live"
"""The alias that queues, APIs, schedules and AWS IoT call. It never points to $LATEST."""

FAILING_MINUTES: Final = 2
"""So many of the last `WATCHED_MINUTES` with a failure end a roll-out; a single failure may be AWS's."""

WATCHED_MINUTES: Final = 5
"""The shortest roll-out (stacks/environment.py) lasts as long."""

_ALIAS_ACTIONS: Final = ("lambda:GetAlias", "lambda:UpdateAlias", "lambda:GetProvisionedConcurrencyConfig")

_CANARIES: Final = {
    5: codedeploy.LambdaDeploymentConfig.CANARY_10_PERCENT_5_MINUTES,
    10: codedeploy.LambdaDeploymentConfig.CANARY_10_PERCENT_10_MINUTES,
    15: codedeploy.LambdaDeploymentConfig.CANARY_10_PERCENT_15_MINUTES,
    30: codedeploy.LambdaDeploymentConfig.CANARY_10_PERCENT_30_MINUTES,
}


class Rollout(Construct):
    """The roll-outs of one stack: its aliases, and what CodeDeploy needs to shift them."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack, "Rollout")
        self._minutes = environment_of(stack).rollout_minutes
        self._others: list[lambda_.CfnAlias] = []
        self._last: list[lambda_.CfnAlias] = []
        if self._minutes is not None:
            self._application = codedeploy.LambdaApplication(
                self, "Application", application_name=Stack.of(self).stack_name
            )
            self._role = service_role(self, "Role", service="codedeploy")
            self._policy = iam.Policy(self, "Policy", roles=[self._role])
            self._allow(["cloudwatch:DescribeAlarms"], "cloudwatch", "alarm:*")

    @classmethod
    def of(cls, scope: Construct) -> Rollout:
        """Return the one of the stack that `scope` is in."""
        stack = Stack.of(scope)
        found = stack.node.try_find_child("Rollout")
        return found if isinstance(found, Rollout) else cls(stack)

    def release(
        self, function: lambda_.Function, *, name: str, retries_of: str | None, is_last: bool
    ) -> lambda_.Alias:
        """Return the alias of `function` that follows its newest version.

        Args:
            function: what is called `name`.
            retries_of: the `service` of the metric of messages that it alone gives back to its queue. They
                stop a roll-out too: a batch that failed message by message is no error to Lambda.
            is_last: its alias moves when all others of the stack have moved.
        """
        version = function.current_version
        alias = lambda_.Alias(function, "Live", alias_name=LIVE, version=version)
        self._put_in_order(cast(lambda_.CfnAlias, alias.node.default_child), is_last)
        if self._minutes is not None:
            self._shift(alias, version, name, retries_of, _CANARIES[self._minutes])
        return alias

    def _put_in_order(self, alias: lambda_.CfnAlias, is_last: bool) -> None:
        if is_last:
            for each in self._others:
                alias.add_resource_dependency(each)
            self._last.append(alias)
        else:
            for each in self._last:
                each.add_resource_dependency(alias)
            self._others.append(alias)

    def _shift(
        self,
        alias: lambda_.Alias,
        version: lambda_.Version,
        name: str,
        retries_of: str | None,
        config: codedeploy.ILambdaDeploymentConfig,
    ) -> None:
        group = codedeploy.LambdaDeploymentGroup(
            alias,
            "Shift",
            application=self._application,
            alias=alias,
            deployment_config=config,
            deployment_group_name=name,
            alarms=[self._alarm(alias, version, name, retries_of)],
            # The managed policy that the CDK would attach reaches every function of the account.
            role=self._role.without_policy_updates(),
        )
        self._allow(_ALIAS_ACTIONS, "lambda", f"function:{name}", f"function:{name}:*")
        group.node.add_dependency(self._policy)

    def _allow(self, actions: Sequence[str], service: str, *resources: str) -> None:
        self._policy.add_statements(allow(actions, [arn(self, service, each) for each in resources]))
        for each in resources:
            if each.endswith("*"):
                reason = "Lambda numbers the versions; alarms are only described."
                accept_wildcard(self._policy, service, each, reason)

    def _alarm(
        self, alias: lambda_.Alias, version: lambda_.Version, name: str, retries_of: str | None
    ) -> cloudwatch.Alarm:
        # Of the new version alone: what the old one fails at must not stop the new one that mends it.
        failures: cloudwatch.IMetric = cloudwatch.Metric(
            namespace="AWS/Lambda",
            metric_name="Errors",
            dimensions_map={
                "FunctionName": name,
                "Resource": f"{name}:{LIVE}",
                "ExecutedVersion": version.version,
            },
            statistic="Sum",
            period=Duration.minutes(1),
        )
        if retries_of is not None:
            retried = cloudwatch.Metric(
                namespace="EventPlane",
                metric_name="Retried",
                dimensions_map={"service": retries_of},
                statistic="Sum",
                period=Duration.minutes(1),
            )
            failures = cloudwatch.MathExpression(
                expression="FILL(errors, 0) + FILL(retried, 0)",
                using_metrics={"errors": failures, "retried": retried},
                period=Duration.minutes(1),
                label="failures",
            )
        return cloudwatch.Alarm(
            alias,
            "ShiftAlarm",
            alarm_name=f"{name}-rollout",
            alarm_description="Rolls back the version of this function that is being deployed; see its log.",
            metric=failures,
            threshold=0,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
            evaluation_periods=WATCHED_MINUTES,
            datapoints_to_alarm=FAILING_MINUTES,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        )


def plain_name(function: lambda_.IFunction) -> str:
    """Return the name of `function`, or of the function that it is an alias of."""
    owner = function.lambda_ if isinstance(function, lambda_.Alias) else function
    return str(cast(lambda_.CfnFunction, owner.node.default_child).function_name)
