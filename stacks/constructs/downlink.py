"""The downlink: three functions that read queues, one that is called every minute, one code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_iot as iot
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from eventplane.contract import Contract
from eventplane.downlink.table import INDEX, PENDING_INDEX, TABLE
from eventplane.fleet_registry import TABLE as FLEET
from eventplane.function_settings import DownlinkSettings
from eventplane.resource_names import channel_queue, dead_letter_queue
from eventplane.topics import device_topic
from stacks.constructs.desired_table import allow_desired
from stacks.constructs.durable_queue import allow_send, find_queue
from stacks.constructs.every_minute import EveryMinute
from stacks.constructs.fleet_registry import allow_fleet
from stacks.constructs.function_assets import function_code
from stacks.constructs.ingest_rule import SQL_VERSION
from stacks.constructs.presence_table import NAME as PRESENCE
from stacks.constructs.presence_table import allow_presence
from stacks.constructs.python_function import PythonFunction
from stacks.constructs.rule_action import send_to
from stacks.constructs.service_role import allow
from stacks.downlink_stack import WORK
from stacks.environment import PROJECT, Environment
from stacks.findings import accept
from stacks.settings import FunctionSize

FOLDER: Final = "downlink"

# Not the connection: what is published between the two reaches nobody.
_SQL: Final = "SELECT clientId AS subscribed FROM '$aws/events/subscriptions/subscribed/+'"


class Downlink(Construct):
    """Brings what is in the devices' `inbox` to them; `answers` is its own inbox, `outbox` for letters."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        environment: Environment,
        contract: Contract,
        inbox: sqs.IQueue,
        answers: sqs.IQueue,
        outbox: sqs.IQueue,
        layer: lambda_.ILayerVersion,
    ) -> None:
        super().__init__(scope, id)
        self._environment = environment
        self._code = function_code(FOLDER, contract)
        self._layer = layer
        self._work = find_queue(self, "WorkQueue", environment=environment, name=WORK)
        self._outbox = outbox
        last_resort = dead_letter_queue(channel_queue(contract.device.inbox))
        self._last_resort = find_queue(self, "LastResort", environment=environment, name=last_resort)
        settings = environment.downlink
        registry = allow_fleet(self, environment=environment, actions=["dynamodb:GetItem"])
        whole_fleet = allow_fleet(self, environment=environment, actions=["dynamodb:Scan"])
        self._function(
            "Desired",
            settings.reader,
            source=inbox,
            statements=[
                registry,
                whole_fleet,
                allow_send(environment=environment, queues=[inbox]),
            ],
        )
        self._function("Answers", settings.reader, source=answers)
        self._function("Due", settings.reader, source=self._work, statements=[registry, whole_fleet])
        reconciler = self._function(
            "Reconciler",
            settings.reconciler,
            statements=[
                registry,
                self._allow(["dynamodb:Query"], INDEX),
            ],
        )
        EveryMinute(
            self,
            "Reconcile",
            environment=environment,
            name="downlink-reconcile",
            function=reconciler,
            inputs=[{"buckets": share} for share in settings.shares],
            is_enabled=settings.is_scheduled,
        )
        arn = "arn:<AWS::Partition>:iot:<AWS::Region>:<AWS::AccountId>:topic/devices/*/inbox"
        accept(self, f"IAM5[Resource::{arn}]", "Any device may be the one that is written to.")
        self._rule()

    def _function(
        self,
        id: str,
        size: FunctionSize,
        *,
        source: sqs.IQueue | None = None,
        statements: Sequence[iam.PolicyStatement] = (),
    ) -> lambda_.IFunction:
        environment = self._environment
        topic = Stack.of(self).format_arn(
            service="iot", resource="topic", resource_name=device_topic("*", "inbox")
        )
        return PythonFunction(
            self,
            id,
            environment=environment,
            name=f"{FOLDER}-{id.lower()}",
            folder=FOLDER,
            entry=id.lower(),
            code=self._code,
            layer=self._layer,
            size=size,
            source=source,
            statements=[
                self._allow(
                    ["dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:DeleteItem", "dynamodb:Query"]
                ),
                self._allow(["dynamodb:Query"], PENDING_INDEX),
                allow_presence(self, environment=environment, actions=["dynamodb:BatchGetItem"]),
                allow(["iot:Publish"], [topic]),
                allow_send(environment=environment, queues=[self._work, self._outbox, self._last_resort]),
                *statements,
            ],
            variables=DownlinkSettings(
                desired_table=environment.resource_name(TABLE),
                presence_table=environment.resource_name(PRESENCE),
                fleet_table=environment.resource_name(FLEET),
                work_queue=self._work.queue_url,
                outbox_queue=self._outbox.queue_url,
                dead_letter_queue=self._last_resort.queue_url,
            ).variables(),
        ).function

    def _allow(self, actions: Sequence[str], index: str | None = None) -> iam.PolicyStatement:
        return allow_desired(self, environment=self._environment, actions=actions, index=index)

    def _rule(self) -> None:
        """A device that subscribes gets at once what waits for it."""
        environment = self._environment
        # IoT allows letters, digits and underscores only.
        name = f"{PROJECT}_{environment.name}_downlink"
        errors = find_queue(self, "WorkDlq", environment=environment, name=f"{WORK}-dlq")
        iot.CfnTopicRule(
            self,
            "Rule",
            rule_name=name,
            topic_rule_payload=iot.CfnTopicRule.TopicRulePayloadProperty(
                description="Devices that subscribe to the downlink",
                aws_iot_sql_version=SQL_VERSION,
                sql=_SQL,
                actions=[send_to(self, "Subscribed", environment=environment, rule=name, queue=self._work)],
                error_action=send_to(self, "Error", environment=environment, rule=name, queue=errors),
            ),
        )
