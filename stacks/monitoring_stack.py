"""Who is told when something fails: alarms on the other stacks' queues, functions and rules, one dashboard.

It finds them by looking through the other stacks, so that nothing can be added and forgotten here.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TypeVar, cast

import aws_cdk as cdk
from aws_cdk import CfnOutput
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_iot as iot
from aws_cdk import aws_lambda as lambda_
from constructs import Construct, IConstruct

from eventplane.canary import CANARY
from eventplane.contract import Contract
from stacks.constructs import watch
from stacks.constructs.alarm_topic import AlarmTopic
from stacks.constructs.canary import Canary
from stacks.constructs.durable_queue import DurableQueue, queue_name
from stacks.constructs.every_minute import EveryMinute
from stacks.constructs.figure_watches import of_figures
from stacks.constructs.ingest_rule import IngestRule
from stacks.constructs.plane_dashboard import PlaneDashboard
from stacks.constructs.python_function import PythonFunction
from stacks.constructs.watch import Watch
from stacks.environment import Environment
from stacks.messaging_stack import INGEST_ERRORS
from stacks.plane_stack import PlaneStack

Kind = TypeVar("Kind", bound=IConstruct)


class MonitoringStack(PlaneStack):
    """Alarms on what is in `watched`, and the canary. It holds no state and can be removed at any time."""

    def __init__(
        self, scope: Construct, *, environment: Environment, contract: Contract, watched: Sequence[cdk.Stack]
    ) -> None:
        super().__init__(scope, environment=environment, name="monitoring")
        canary = contract.participants.get(CANARY)
        has_canary = canary is not None and not canary.retired
        if has_canary:
            Canary(self, "Canary", environment=environment, contract=contract)
            watched = [*watched, self]
        queues = _find(watched, DurableQueue)
        functions = [str(each.function_name) for each in _find(watched, lambda_.CfnFunction)]
        services = {each.metrics_service for each in _find(watched, PythonFunction)}
        rules = [str(each.rule_name) for each in _find(watched, iot.CfnTopicRule)]
        ingest = {each.name for each in _find(watched, IngestRule)}
        settings = environment.alarms
        pages = AlarmTopic(
            self, "Pages", environment=environment, name="pages", subscribers=settings.page_subscribers
        )
        tickets = AlarmTopic(
            self, "Tickets", environment=environment, name="tickets", subscribers=settings.ticket_subscribers
        )
        watches = chain(
            watch.of_queues(queues, environment, has_canary=has_canary),
            watch.of_functions(functions, environment),
            of_figures(services, environment),
            (
                watch.of_schedule(each.function_name)
                for each in _find(watched, EveryMinute)
                if settings.is_detailed and each.is_enabled and each.is_every_minute
            ),
            chain.from_iterable(watch.of_rule(each, environment, is_ingest=each in ingest) for each in rules),
            [watch.of_ingest_errors(queue_name(environment, INGEST_ERRORS))],
            watch.of_audit(environment),
            watch.of_compaction(environment),
        )
        PlaneDashboard(
            self,
            "Dashboard",
            environment=environment,
            alarms=[_alarm(self, each, pages if each.is_page else tickets) for each in watches],
            queues=queues,
            functions=functions,
            rules=rules,
            services=services,
        )
        CfnOutput(self, "PageTopic", value=pages.topic.topic_arn)
        CfnOutput(self, "TicketTopic", value=tickets.topic.topic_arn)


def _alarm(scope: Construct, watched: Watch, topic: AlarmTopic) -> cloudwatch.Alarm:
    """Make the alarm of a `Watch`; its topic is told when it begins and when it ends."""
    missing, operator = cloudwatch.TreatMissingData, cloudwatch.ComparisonOperator
    alarm = cloudwatch.Alarm(
        scope,
        watched.name.replace("_", "-").replace(".", "-"),
        alarm_name=watched.name,
        alarm_description=watched.remedy,
        metric=cast("cloudwatch.IMetric", watched.metric),
        threshold=watched.threshold,
        comparison_operator=operator.LESS_THAN_THRESHOLD
        if watched.is_least
        else operator.GREATER_THAN_THRESHOLD,
        evaluation_periods=watched.periods,
        treat_missing_data=missing.BREACHING if watched.is_silence_bad else missing.NOT_BREACHING,
    )
    action = cast("cloudwatch.IAlarmAction", topic.action)
    alarm.add_alarm_action(action)
    alarm.add_ok_action(action)
    return alarm


def _find(stacks: Sequence[cdk.Stack], kind: type[Kind]) -> list[Kind]:
    """Everything of one `kind` in `stacks`, in the order of declaration."""
    return [each for stack in stacks for each in stack.node.find_all() if isinstance(each, kind)]
