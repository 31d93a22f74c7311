"""The presence monitor: two functions take down what is said of devices, a third judges them when a timer
fires, a fourth finds lost timers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Final

from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from eventplane.contract import Contract
from eventplane.function_settings import (
    PresenceJudgeSettings,
    PresenceLimits,
    PresenceSource,
    RecorderSettings,
)
from eventplane.presence import BUCKETS
from eventplane.settings import Settings
from stacks.constructs.durable_queue import allow_send, find_queue
from stacks.constructs.every_minute import EveryMinute
from stacks.constructs.function_assets import function_code
from stacks.constructs.presence_rule import PresenceRule
from stacks.constructs.presence_table import DUE_INDEX, NAME, allow_presence
from stacks.constructs.python_function import PythonFunction
from stacks.environment import Environment
from stacks.presence_stack import LIFECYCLE, TIMERS
from stacks.settings import FunctionSize, PresenceSettings

FOLDER = "presence"

READ_AND_WRITE = ("dynamodb:BatchGetItem", "dynamodb:PutItem")

OVERDUE_S: Final = 60
"""How long a device is due before its timer is presumed lost, seconds. Ours: more than a cold start, an
attempt that failed, and the next one take."""


class PresenceMonitor(Construct):
    """Watches devices by their connections and the `heartbeats` in its inbox, and writes to its `outbox`."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        environment: Environment,
        contract: Contract,
        heartbeats: sqs.IQueue,
        outbox: sqs.IQueue,
        layer: lambda_.ILayerVersion,
    ) -> None:
        super().__init__(scope, id)
        self._environment = environment
        self._code = function_code(FOLDER, contract)
        self._layer = layer
        self._timers = find_queue(self, "TimersQueue", environment=environment, name=TIMERS)
        settings = environment.presence
        lifecycle = find_queue(self, "LifecycleQueue", environment=environment, name=LIFECYCLE)
        PresenceRule(
            self,
            "Rule",
            environment=environment,
            lifecycle=lifecycle,
            # What SQS does not take now is rarely taken by another queue: the dead letters are alarmed on.
            errors=find_queue(self, "LifecycleDlq", environment=environment, name=f"{LIFECYCLE}-dlq"),
        )
        shared: dict[str, Any] = {
            "presence_table": environment.resource_name(NAME),
            "presence_limits": _limits(settings),
            "timer_queue": self._timers.queue_url,
        }
        for each, source in {
            PresenceSource.CONNECTIONS: lifecycle,
            PresenceSource.HEARTBEATS: heartbeats,
        }.items():
            self._function(
                each.capitalize(),
                RecorderSettings(**shared, source=each),
                settings.recorder,
                entry="recorder",
                source=source,
            )
        judge = PresenceJudgeSettings(**shared, outbox_queue=outbox.queue_url)
        self._function(
            "Timers",
            judge,
            settings.timers,
            source=self._timers,
            is_fed=settings.is_active,
            outbox=outbox,
        )
        index = allow_presence(self, environment=environment, actions=["dynamodb:Query"], index=DUE_INDEX)
        reconciler = self._function(
            "Reconciler", judge, settings.reconciler, statements=[index], outbox=outbox
        )
        EveryMinute(
            self,
            "Reconcile",
            environment=environment,
            name="presence-reconcile",
            function=reconciler,
            inputs=[{"buckets": list(range(BUCKETS)), "overdue_ms": 1_000 * OVERDUE_S}],
            is_enabled=settings.is_active,
        )

    def _function(
        self,
        id: str,
        settings: Settings,
        size: FunctionSize,
        *,
        entry: str | None = None,
        source: sqs.IQueue | None = None,
        is_fed: bool = True,
        statements: Sequence[iam.PolicyStatement] = (),
        outbox: sqs.IQueue | None = None,
    ) -> lambda_.IFunction:
        return PythonFunction(
            self,
            id,
            environment=self._environment,
            name=f"presence-{id.lower()}",
            folder=FOLDER,
            entry=entry or id.lower(),
            code=self._code,
            layer=self._layer,
            size=size,
            source=source,
            is_fed=is_fed,
            statements=[
                allow_presence(self, environment=self._environment, actions=READ_AND_WRITE),
                allow_send(
                    environment=self._environment, queues=[self._timers, *([outbox] if outbox else [])]
                ),
                *statements,
            ],
            variables=settings.variables(),
        ).function


def _limits(settings: PresenceSettings) -> PresenceLimits:
    return PresenceLimits(**{each.name: getattr(settings, each.name) for each in fields(PresenceLimits)})
