"""Who is told when something is wrong: alarms on every queue, function and rule of the others, one dashboard.

It finds them by looking through the other stacks, so that nothing can be added and forgotten here.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TypeVar

import aws_cdk as cdk
from aws_cdk import CfnOutput
from aws_cdk import aws_iot as iot
from aws_cdk import aws_lambda as lambda_
from constructs import Construct, IConstruct

from stacks.constructs import watch
from stacks.constructs.alarm_topic import AlarmTopic
from stacks.constructs.durable_queue import DurableQueue, queue_name
from stacks.constructs.every_minute import EveryMinute
from stacks.constructs.figure_watches import of_figures
from stacks.constructs.plane_dashboard import PlaneDashboard
from stacks.environment import Environment
from stacks.messaging_stack import INGEST_ERRORS
from stacks.plane_stack import PlaneStack

Kind = TypeVar("Kind", bound=IConstruct)


class MonitoringStack(PlaneStack):
    """Alarms on what is in `watched`. It holds no state and can be deployed and removed at any time."""

    def __init__(self, scope: Construct, *, environment: Environment, watched: Sequence[cdk.Stack]) -> None:
        super().__init__(scope, environment=environment, name="monitoring")
        queues = _find(watched, DurableQueue)
        found = _find(watched, lambda_.CfnFunction)
        functions = [str(each.function_name) for each in found]
        rules = [str(each.rule_name) for each in _find(watched, iot.CfnTopicRule)]
        schedules = _find(watched, EveryMinute)
        topic = AlarmTopic(self, "Alarms", environment=environment)
        watches = chain(
            chain.from_iterable(map(watch.of_queue, queues)),
            chain.from_iterable(map(watch.of_function, functions)),
            chain.from_iterable(
                of_figures(_folder(each), str(each.function_name), environment) for each in found
            ),
            (watch.of_schedule(each.function_name) for each in schedules if each.is_enabled),
            chain.from_iterable(watch.of_rule(each, environment) for each in rules),
            [watch.of_ingest_errors(queue_name(environment, INGEST_ERRORS))],
            watch.of_audit(environment),
            watch.of_compaction(environment),
        )
        PlaneDashboard(
            self,
            "Dashboard",
            environment=environment,
            alarms=[topic.alarm(self, each) for each in watches],
            queues=queues,
            functions=functions,
            rules=rules,
            routers=_with_code(found, "router"),
            posters=_with_code(found, "http_sink"),
            downlinks=[each for each in functions if "-downlink-" in each],
        )
        CfnOutput(self, "AlarmTopic", value=topic.topic.topic_arn)


def _find(stacks: Sequence[cdk.Stack], kind: type[Kind]) -> list[Kind]:
    """Everything of one `kind` in `stacks`, in the order of declaration."""
    return [each for stack in stacks for each in stack.node.find_all() if isinstance(each, kind)]


def _with_code(functions: Sequence[lambda_.CfnFunction], *folders: str) -> list[str]:
    """The names of those whose code is in one of `folders`."""
    return [str(each.function_name) for each in functions if _folder(each) in folders]


def _folder(function: lambda_.CfnFunction) -> str:
    """Where the function's code is, below lambdas/ (`lambdas.<folder>.handler.handle`)."""
    return str(function.handler).split(".")[1]
