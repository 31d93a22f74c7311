"""IoT Core's messages about connections and their ends, on their way to the presence monitor."""

from __future__ import annotations

from aws_cdk import aws_iot as iot
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from eventplane.presence import PRESENCE_TOPICS
from stacks.constructs.ingest_rule import SQL_VERSION
from stacks.constructs.rule_action import send_to
from stacks.environment import PROJECT, Environment


class PresenceRule(Construct):
    """Gives every lifecycle message to `lifecycle`; what that does not take goes to `errors`."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        environment: Environment,
        lifecycle: sqs.IQueue,
        errors: sqs.IQueue,
    ) -> None:
        super().__init__(scope, id)
        name = f"{PROJECT}_{environment.name}_presence"
        self.rule = iot.CfnTopicRule(
            self,
            "Rule",
            rule_name=name,
            topic_rule_payload=iot.CfnTopicRule.TopicRulePayloadProperty(
                description="Connections of devices to the presence monitor",
                aws_iot_sql_version=SQL_VERSION,
                sql=f"SELECT * FROM '{PRESENCE_TOPICS}'",  # noqa: S608 - of a constant only
                actions=[send_to(self, "Lifecycle", environment=environment, rule=name, queue=lifecycle)],
                error_action=send_to(self, "Error", environment=environment, rule=name, queue=errors),
            ),
        )
