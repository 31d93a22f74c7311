"""Roll-out of new versions of functions: an alias moves step by step, and back when an alarm fires."""

from __future__ import annotations

from typing import Final, cast

from aws_cdk import Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_codedeploy as codedeploy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_

from stacks.constructs.metrics import MINUTE, Figure, computed, metric
from stacks.constructs.permissions import accept_wildcard, allow, arn
from stacks.plane_stack import OneOfStack, environment_of

LIVE: Final = "live"
"""The alias that queues call. It never points to $LATEST."""

FAILING_MINUTES: Final = 2
"""So many of the last `WATCHED_MINUTES` with a failure end a roll-out; a single failure may be AWS's."""

WATCHED_MINUTES: Final = 5
"""The shortest roll-out (stacks/environment.py) lasts as long."""

_ALIAS_ACTIONS: Final = ("lambda:GetAlias", "lambda:UpdateAlias", "lambda:GetProvisionedConcurrencyConfig")

_CANARIES: Final[dict[int | None, codedeploy.ILambdaDeploymentConfig]] = {
    5: codedeploy.LambdaDeploymentConfig.CANARY_10_PERCENT_5_MINUTES,
    10: codedeploy.LambdaDeploymentConfig.CANARY_10_PERCENT_10_MINUTES,
    15: codedeploy.LambdaDeploymentConfig.CANARY_10_PERCENT_15_MINUTES,
    30: codedeploy.LambdaDeploymentConfig.CANARY_10_PERCENT_30_MINUTES,
}


class Rollout(OneOfStack):
    """The roll-outs of one stack: its aliases, and what CodeDeploy needs to shift them."""

    def __init__(self, stack: Stack, id: str) -> None:
        super().__init__(stack, id)
        self._aliases: list[tuple[lambda_.CfnAlias, bool]] = []
        self._config = _CANARIES.get(environment_of(stack).rollout_minutes)
        if self._config is not None:
            self._application = codedeploy.LambdaApplication(
                self, "Application", application_name=stack.stack_name
            )
            described = allow(["cloudwatch:DescribeAlarms"], [arn(self, "cloudwatch", "alarm:*")])
            self._permissions = iam.PolicyDocument(statements=[described])
            # Inline and not beside the role, so that it is in force before the first shift.
            self._role = iam.Role(
                self,
                "Role",
                assumed_by=iam.ServicePrincipal("codedeploy.amazonaws.com"),
                inline_policies={"permissions": self._permissions},
            )
            accept_wildcard(self._role, "cloudwatch", "alarm:*", "Alarms are only described.")

    def release(self, function: lambda_.Function, *, name: str, is_last: bool) -> lambda_.Alias:
        """Return the alias of `function`, which is called `name`, that follows its newest version.

        That of one that `is_last` moves when all others of the stack have moved.
        """
        version = function.current_version
        alias = lambda_.Alias(function, "Live", alias_name=LIVE, version=version)
        self._put_in_order(cast(lambda_.CfnAlias, alias.node.default_child), is_last)
        if self._config is not None:
            self._shift(alias, version, name)
        return alias

    def _put_in_order(self, alias: lambda_.CfnAlias, is_last: bool) -> None:
        for other, waits in self._aliases:
            if is_last and not waits:
                alias.add_resource_dependency(other)
            elif waits and not is_last:
                other.add_resource_dependency(alias)
        self._aliases.append((alias, is_last))

    def _shift(self, alias: lambda_.Alias, version: lambda_.Version, name: str) -> None:
        codedeploy.LambdaDeploymentGroup(
            alias,
            "Shift",
            application=self._application,
            alias=alias,
            deployment_config=self._config,
            deployment_group_name=name,
            alarms=[_alarm(alias, version, name)],
            # The managed policy that the CDK would attach reaches every function of the account.
            role=self._role.without_policy_updates(),
        )
        function = f"function:{name}"
        arns = [arn(self, "lambda", each) for each in (function, f"{function}:*")]
        self._permissions.add_statements(allow(_ALIAS_ACTIONS, arns))
        accept_wildcard(self._role, "lambda", f"{function}:*", "Lambda numbers the versions.")


def _alarm(alias: lambda_.Alias, version: lambda_.Version, name: str) -> cloudwatch.Alarm:
    # Of the new version alone: what the old one fails at must not stop the new one that mends it.
    new = {"FunctionName": name, "Resource": f"{name}:{LIVE}", "ExecutedVersion": version.version}
    metrics: dict[str, Figure] = {
        "errors": metric("AWS/Lambda", "Errors", "Sum", MINUTE, **new),
        # A batch that failed message by message is no error to Lambda.
        "retried": metric("EventPlane", "Retried", "Sum", MINUTE, service=name),
    }
    failures = computed("FILL(errors, 0) + FILL(retried, 0)", "failures", metrics, MINUTE)
    return cloudwatch.Alarm(
        alias,
        "ShiftAlarm",
        alarm_name=f"{name}-rollout",
        alarm_description="Rolls back the version of this function that is being deployed; see its log.",
        metric=cast("cloudwatch.IMetric", failures),
        threshold=0,
        comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
        evaluation_periods=WATCHED_MINUTES,
        datapoints_to_alarm=FAILING_MINUTES,
        treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
    )
