"""From a device's connection to the end of the certificate that it replaced: rule, queue, function."""

from __future__ import annotations

from typing import Final

from aws_cdk import Stack
from aws_cdk import aws_iot as iot
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from eventplane.fleet_registry import TABLE
from eventplane.function_settings import CertificateSettings
from stacks.constructs.durable_queue import allow_send, find_queue
from stacks.constructs.fleet_registry import allow_registry
from stacks.constructs.function_assets import function_code
from stacks.constructs.ingest_rule import SQL_VERSION
from stacks.constructs.python_function import PythonFunction
from stacks.constructs.rule_action import send_to
from stacks.constructs.service_role import allow
from stacks.environment import PROJECT, Environment
from stacks.findings import accept
from stacks.settings import FunctionSize

FOLDER: Final = "fleet"

CONNECTIONS: Final = "connections"
"""The queue from the rule to the function, and from the function to itself for ends of grace periods."""

SIZE: Final = FunctionSize(memory_mib=512, timeout_s=60, batch_size=100, batch_window_s=5, max_concurrency=2)
"""Nobody waits for it; two at a time stay below the ten calls a second that AWS IoT allows an account."""

# Claims and renewals come along, a few times in a device's life: the registry knows nobody of their names.
_SQL: Final = (
    "SELECT clientId AS thing, principalIdentifier AS certificate FROM '$aws/events/presence/connected/+'"
)


class CertificateKeeper(Construct):
    """Confirms the certificate that a device was seen with, and deactivates those before it."""

    def __init__(
        self, scope: Construct, id: str, *, environment: Environment, layer: lambda_.ILayerVersion
    ) -> None:
        super().__init__(scope, id)
        self._environment = environment
        queue = find_queue(self, "Queue", environment=environment, name=CONNECTIONS)
        dead_letters = find_queue(self, "DeadLetters", environment=environment, name=f"{CONNECTIONS}-dlq")
        things, certificates = self._arn("thing/*"), self._arn("cert/*")
        self.function = PythonFunction(
            self,
            "Keeper",
            environment=environment,
            name="certificate-keeper",
            folder=FOLDER,
            entry="rotation",
            code=function_code(FOLDER),
            layer=layer,
            size=SIZE,
            source=queue,
            statements=[
                allow_registry(self, environment=environment),
                allow_send(environment=environment, queues=[queue]),
                allow(["iot:UpdateCertificate"], [certificates]),
                allow(["iot:DetachThingPrincipal"], [things, certificates]),
            ],
            variables=CertificateSettings(
                fleet_table=environment.resource_name(TABLE),
                certificate_arns=self._arn("cert/"),
                certificate_grace_s=environment.certificate_grace_s,
            ).variables(),
        ).function
        for kind in ("thing", "cert"):
            arn = f"arn:<AWS::Partition>:iot:<AWS::Region>:<AWS::AccountId>:{kind}/*"
            accept(self, f"IAM5[Resource::{arn}]", "Any device may be the one that replaced its certificate.")
        self._rule(queue, dead_letters)

    def _rule(self, queue: sqs.IQueue, dead_letters: sqs.IQueue) -> None:
        # IoT allows letters, digits and underscores only.
        name = f"{PROJECT}_{self._environment.name}_connections"

        def send(purpose: str, target: sqs.IQueue) -> iot.CfnTopicRule.ActionProperty:
            return send_to(self, purpose, environment=self._environment, rule=name, queue=target)

        iot.CfnTopicRule(
            self,
            "Rule",
            rule_name=name,
            topic_rule_payload=iot.CfnTopicRule.TopicRulePayloadProperty(
                description="Which certificate each device connects with",
                aws_iot_sql_version=SQL_VERSION,
                sql=_SQL,
                actions=[send("Connection", queue)],
                error_action=send("Error", dead_letters),
            ),
        )

    def _arn(self, resource: str) -> str:
        return Stack.of(self).format_arn(service="iot", resource=resource)
