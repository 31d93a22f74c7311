"""Alarms on the other stacks' queues, functions and rules, the canary, and one dashboard.

It finds them by looking through the other stacks, so that nothing can be added and forgotten here.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, TypeVar, cast

import aws_cdk as cdk
from aws_cdk import Aws, CfnOutput
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_iot as iot
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct, IConstruct

from eventplane.contract import Contract
from eventplane.names import CANARY
from eventplane.topics import urgent_rule
from stacks.alarm_texts import description
from stacks.constructs import watch
from stacks.constructs.figure_watches import of_figures
from stacks.constructs.permissions import PLAIN_HTTP, accept, arn, find_key
from stacks.constructs.plane_dashboard import PlaneDashboard
from stacks.constructs.python_function import PythonFunction
from stacks.constructs.queues import DurableQueue, dead_letters_of
from stacks.constructs.schedule import Schedule
from stacks.constructs.watch import Watch
from stacks.environment import Environment
from stacks.names import INGEST_ERRORS, ingest_rule_name
from stacks.plane_stack import PlaneStack, environment_of
from stacks.settings import is_endpoint

Kind = TypeVar("Kind", bound=IConstruct)


class MonitoringStack(PlaneStack):
    """Alarms on other stacks, and the canary. It holds no state and can be removed at any time."""

    def __init__(self, scope: Construct, environment: Environment) -> None:
        super().__init__(scope, environment=environment, name="monitoring")

    def watch(self, contract: Contract, watched: Sequence[cdk.Stack]) -> None:
        """Add alarms on what is in `watched`, and on what is in this stack by now."""
        participant, environment = contract.participants.get(CANARY), self.plane
        has_canary = participant is not None and not participant.retired
        watched = [*watched, self]
        queues = _find(watched, DurableQueue)
        services: dict[str, list[str]] = {}
        for each in _find(watched, PythonFunction):
            services.setdefault(each.metrics_service, []).append(each.name)
        rules = [str(each.rule_name) for each in _find(watched, iot.CfnTopicRule)]
        ingest = ingest_rule_name(environment.name)
        settings = environment.alarms
        pages = _topic(self, "Pages", settings.page_subscribers)
        tickets = _topic(self, "Tickets", settings.ticket_subscribers)
        watches = chain(
            watch.of_queues(queues, environment, has_canary=has_canary),
            watch.of_functions(services, environment),
            of_figures(services, environment),
            (
                watch.of_schedule(each.function_name)
                for each in _find(watched, Schedule)
                if settings.is_detailed and each.is_enabled and each.is_every_minute
            ),
            chain.from_iterable(
                watch.of_rule(each, environment, is_ingest=each in (ingest, urgent_rule(ingest)))
                for each in rules
            ),
            [watch.of_ingest_errors(environment.resource_name(INGEST_ERRORS))],
            watch.of_audit(environment),
            watch.of_compaction(environment) if environment.has("archive_care", contract) else (),
        )
        PlaneDashboard(
            self,
            "Dashboard",
            alarms=[_alarm(self, each, pages if each.is_page else tickets) for each in watches],
            queues=queues,
            functions=[*chain.from_iterable(services.values())],
            rules=rules,
            services=services,
        )
        CfnOutput(self, "PageTopic", value=pages.topic_arn)
        CfnOutput(self, "TicketTopic", value=tickets.topic_arn)


def _topic(scope: Construct, id: str, subscribers: Sequence[str]) -> sns.Topic:
    """Return the topic `id` of alarms for `subscribers`: e-mail addresses and HTTPS endpoints.

    What SNS cannot deliver to one of them is kept in a queue.
    """
    holder = Construct(scope, id)
    environment = environment_of(holder)
    topic = sns.Topic(
        holder,
        "Topic",
        topic_name=environment.resource_name(id.lower()),
        master_key=find_key(holder),
        enforce_ssl=not environment.is_emulated,
    )
    # The policy that refuses plain HTTP replaces the one by which an account's alarms may publish.
    topic.add_to_resource_policy(
        iam.PolicyStatement(
            principals=[cast("iam.IPrincipal", iam.ServicePrincipal("cloudwatch.amazonaws.com"))],
            actions=["sns:Publish"],
            resources=[topic.topic_arn],
            conditions={
                "StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID},
                "ArnLike": {
                    "aws:SourceArn": arn(holder, "cloudwatch", f"alarm:{environment.resource_name('*')}")
                },
            },
        )
    )
    failed = cast("Any", dead_letters_of(holder, "Failed", id.lower())) if subscribers else None
    for address in subscribers:
        kind = subscriptions.UrlSubscription if is_endpoint(address) else subscriptions.EmailSubscription
        topic.add_subscription(cast("Any", kind(address, dead_letter_queue=failed)))
    if environment.is_emulated:
        accept(holder, "SNS3", PLAIN_HTTP)
    if environment.customer_key is None:
        accept(holder, "SNS2", "Alarms cannot use a key of AWS's own; they name resources, and no event.")
    return topic


def _alarm(scope: Construct, watched: Watch, topic: sns.Topic) -> cloudwatch.Alarm:
    """Make the alarm of a `Watch`; its topic is told when it begins and when it ends."""
    missing, operator = cloudwatch.TreatMissingData, cloudwatch.ComparisonOperator
    prefix = len(environment_of(scope).resource_name(""))
    alarm = cloudwatch.Alarm(
        scope,
        watched.name.replace("_", "-").replace(".", "-"),
        alarm_name=watched.name,
        alarm_description=watched.about + description(watched.name[prefix:]),
        metric=cast("cloudwatch.IMetric", watched.judged),
        threshold=watched.threshold,
        comparison_operator=operator.LESS_THAN_THRESHOLD
        if watched.is_least
        else operator.GREATER_THAN_THRESHOLD,
        evaluation_periods=watched.periods,
        treat_missing_data=missing.BREACHING if watched.is_silence_bad else missing.NOT_BREACHING,
    )
    action = cast("cloudwatch.IAlarmAction", actions.SnsAction(topic))
    alarm.add_alarm_action(action)
    alarm.add_ok_action(action)
    return alarm


def _find(stacks: Sequence[cdk.Stack], kind: type[Kind]) -> list[Kind]:
    """Everything of one `kind` in `stacks`, in the order of declaration."""
    return [each for stack in stacks for each in stack.node.find_all() if isinstance(each, kind)]
