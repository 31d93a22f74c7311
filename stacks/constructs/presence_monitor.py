"""The presence monitor: two functions take down what is said of devices, a third says what follows."""

from __future__ import annotations

import json
from collections.abc import Sequence

from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from eventplane.contract import Contract
from eventplane.traffic import quota_text
from stacks.constructs.durable_queue import allow_send, find_queue
from stacks.constructs.every_minute import EveryMinute
from stacks.constructs.function_assets import function_code
from stacks.constructs.presence_rule import PresenceRule
from stacks.constructs.presence_table import DUE_INDEX, NAME, allow_presence
from stacks.constructs.python_function import PythonFunction
from stacks.environment import Environment
from stacks.function_size import FunctionSize
from stacks.presence_stack import LIFECYCLE
from stacks.scheduled_settings import PresenceSettings

FOLDER = "presence"

READ_AND_WRITE = ("dynamodb:BatchGetItem", "dynamodb:PutItem")


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
        sweeper = self._function(
            "Sweeper",
            "schedule",
            settings.sweeper,
            statements=[
                allow_presence(self, environment=environment, actions=["dynamodb:Query"], index=DUE_INDEX),
                allow_send(environment=environment, queues=[outbox]),
            ],
            outbox_url=outbox.queue_url,
        )
        EveryMinute(
            self,
            "Sweep",
            environment=environment,
            name="presence-sweep",
            function=sweeper,
            inputs=[{"buckets": share} for share in settings.shares],
            is_enabled=settings.is_scheduled,
        )

    def _function(
        self,
        id: str,
        fed_with: str,
        size: FunctionSize,
        *,
        source: sqs.IQueue | None = None,
        statements: Sequence[iam.PolicyStatement] = (),
        outbox_url: str | None = None,
    ) -> lambda_.Function:
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
            statements=[
                allow_presence(self, environment=self._environment, actions=READ_AND_WRITE),
                *statements,
            ],
            variables={
                "EVENTPLANE_SOURCE": fed_with,
                "EVENTPLANE_PRESENCE_TABLE": self._environment.resource_name(NAME),
                "EVENTPLANE_DEVICE_QUOTA": quota_text(self._environment.presence.quota),
                "EVENTPLANE_PRESENCE_LIMITS": json.dumps(_limits(self._environment.presence)),
                **({"EVENTPLANE_OUTBOX_URL": outbox_url} if outbox_url else {}),
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
