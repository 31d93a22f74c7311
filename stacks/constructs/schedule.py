"""Calls of a function once a minute, or every so many."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from aws_cdk import Aws, Duration
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from stacks.constructs.permissions import allow, service_role
from stacks.constructs.python_function import PythonFunction
from stacks.plane_stack import environment_of


class Schedule(Construct):
    """Calls `function` with each of `inputs`. A call that fails is not repeated: the next one is near.

    `rates` are the minutes between two calls with each input; without them it is called every minute.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        name: str,
        function: PythonFunction,
        inputs: Sequence[Mapping[str, Any]],
        is_enabled: bool,
        rates: Sequence[int] | None = None,
    ) -> None:
        super().__init__(scope, id)
        self.function_name = function.name
        self.is_enabled = is_enabled
        self.is_every_minute = rates is None
        # The schedule only hands a call over. Lambda would repeat one that fails twice, and one that is
        # throttled for six hours: old calls in a burst, beside the new ones.
        function.function.configure_async_invoke(retry_attempts=0, max_event_age=Duration.minutes(1))
        environment = environment_of(self)
        role = service_role(
            self,
            "Role",
            service="scheduler",
            statements=[allow(["lambda:InvokeFunction"], [function.function.function_arn])],
            trust_conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}},
        )
        for number, each in enumerate(inputs):
            scheduler.CfnSchedule(
                self,
                f"Schedule{number}",
                name=environment.resource_name(f"{name}-{number}"),
                schedule_expression=_rate(1 if rates is None else rates[number]),
                state="ENABLED" if is_enabled else "DISABLED",
                flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
                target=scheduler.CfnSchedule.TargetProperty(
                    arn=function.function.function_arn,
                    role_arn=role.role_arn,
                    input=json.dumps(each),
                    retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(maximum_retry_attempts=0),
                ),
            )


def _rate(minutes: int) -> str:
    return "rate(1 minute)" if minutes == 1 else f"rate({minutes} minutes)"
