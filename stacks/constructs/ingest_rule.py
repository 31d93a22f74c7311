"""The way in: an IoT rule that hands what devices publish to the router's queue and to the archive tap's."""

from __future__ import annotations

from typing import Final

from aws_cdk import aws_iot as iot
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from eventplane.ingest import RULE_SELECT
from eventplane.topics import device_topic
from stacks.constructs.rule_action import send_to
from stacks.environment import PROJECT, Environment

SQL_VERSION: Final = "2016-03-23"


class IngestRule(Construct):
    """Gives every publish, with what IoT Core knows of its sender, to two queues independent of each other.

    What a queue does not take goes to `errors`. Devices name the rule they publish to (Basic Ingest), and
    so choose the lane.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        environment: Environment,
        name: str,
        ingest: sqs.IQueue,
        tap: sqs.IQueue,
        errors: sqs.IQueue,
    ) -> None:
        super().__init__(scope, id)
        self.name = name

        def send(purpose: str, queue: sqs.IQueue) -> iot.CfnTopicRule.ActionProperty:
            return send_to(self, purpose, environment=environment, rule=name, queue=queue)

        self.rule = iot.CfnTopicRule(
            self,
            "Rule",
            rule_name=self.name,
            topic_rule_payload=iot.CfnTopicRule.TopicRulePayloadProperty(
                description="Devices' outboxes to the router and, independently, to the archive",
                aws_iot_sql_version=SQL_VERSION,
                sql=f"SELECT {RULE_SELECT} FROM '{device_topic('+', 'outbox')}'",  # noqa: S608 - of constants only
                actions=[send("Ingest", ingest), send("Tap", tap)],
                error_action=send("Error", errors),
            ),
        )


def ingest_rule_name(environment: Environment) -> str:
    """What devices call the rule for all that is not urgent; the urgent one's name follows from it."""
    # IoT allows letters, digits and underscores only.
    return f"{PROJECT}_{environment.name}_ingest"
