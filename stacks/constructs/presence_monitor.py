"""The presence monitor: two functions take down what is said of devices, a third judges them when a timer
fires, a fourth finds lost timers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from eventplane.contract import Contract
from eventplane.presence import BUCKETS
from eventplane.traffic import quota_text
from stacks.constructs.durable_queue import allow_send, find_queue
from stacks.constructs.every_minute import EveryMinute
from stacks.constructs.function_assets import function_code
from stacks.constructs.presence_rule import PresenceRule
from stacks.constructs.presence_table import DUE_INDEX, NAME, allow_presence
from stacks.constructs.python_function import PythonFunction
from stacks.environment import Environment
from stacks.function_size import FunctionSize
from stacks.presence_stack import LIFECYCLE, TIMERS
from stacks.scheduled_settings import PresenceSettings

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
        self._function("Connections", "presence", settings.recorder, source=lifecycle)
        self._function("Heartbeats", "heartbeats", settings.recorder, source=heartbeats)
        self._function(
            "Timers",
            "timers",
            settings.timers,
            source=self._timers,
            is_fed=settings.is_active,
            outbox=outbox,
        )
        index = allow_presence(self, environment=environment, actions=["dynamodb:Query"], index=DUE_INDEX)
        reconciler = self._function(
            "Reconciler", "schedule", settings.reconciler, statements=[index], outbox=outbox
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
        fed_with: str,
        size: FunctionSize,
        *,
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
            variables={
                "EVENTPLANE_SOURCE": fed_with,
                "EVENTPLANE_PRESENCE_TABLE": self._environment.resource_name(NAME),
                "EVENTPLANE_DEVICE_QUOTA": quota_text(self._environment.presence.quota),
                "EVENTPLANE_PRESENCE_LIMITS": json.dumps(_limits(self._environment.presence)),
                "EVENTPLANE_TIMER_QUEUE": self._timers.queue_url,
                **({"EVENTPLANE_OUTBOX_URL": outbox.queue_url} if outbox else {}),
            },
        ).function


def _limits(settings: PresenceSettings) -> dict[str, str]:
    """What the functions need to know of `settings`, as texts."""
    return {
        name: str(getattr(settings, name))
        for name in (
            "disconnected_after_s",
            "connected_after_s",
            "quiet_after_heartbeats",
            "oldest_urgent_s",
            "oldest_normal_s",
        )
    }
