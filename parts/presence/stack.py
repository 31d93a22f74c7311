"""The presence monitor: two functions take down what is said of devices, a third judges them when a timer
fires, a fourth finds lost timers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Final

from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from eventplane.contract import Contract
from eventplane.names import MONITOR
from eventplane.presence import (
    BUCKETS,
    INDEX,
    INDEXES,
    PRESENCE,
    PRESENCE_TABLE,
    STANDING_INDEX,
    PresenceLimits,
)
from eventplane.settings import Settings
from eventplane.topics import PRESENCE_TOPICS
from parts.presence.settings import PresenceJudgeSettings, PresenceSource, RecorderSettings
from stacks.application import PlaneStacks
from stacks.constructs.python_function import PythonFunction
from stacks.constructs.queues import DurableQueue, allow_send, find_queue
from stacks.constructs.rules import topic_rule
from stacks.constructs.schedule import Schedule
from stacks.constructs.tables import allow_table, durable_table, number
from stacks.names import LIFECYCLE, TIMERS, rule_name
from stacks.plane_stack import environment_of
from stacks.settings import FunctionSize

OVERDUE_S: Final = 60
"""How long a device is due before its timer is presumed lost, seconds. Ours: more than a cold start, an
attempt that failed, and the next one take."""


def add(plane: PlaneStacks) -> None:
    """Add the stack of what the monitor keeps, and its functions to those that route."""
    state, sizes, routing = plane.add_state("presence"), plane.environment.presence, plane.routing
    table = durable_table(Construct(state, "Devices"), "Table", PRESENCE_TABLE, *PRESENCE.key)
    for name, (partition, sort) in INDEXES.items():
        # With the keys only: a write that leaves them alone costs nothing there.
        table.add_global_secondary_index(
            index_name=name,
            partition_key=number(partition),
            sort_key=number(sort),
            projection_type=dynamodb.ProjectionType.KEYS_ONLY,
        )
    state.output("PresenceTable", table.table_name)
    lifecycle = DurableQueue(state, "Lifecycle", LIFECYCLE, visibility=sizes.recorder.visibility)
    state.output_queue("Presence", lifecycle)
    timers = DurableQueue(state, "Timers", TIMERS, visibility=sizes.timers.visibility)
    state.output_queue("PresenceTimers", timers)
    heartbeats, outbox = routing.inboxes[MONITOR], routing.outboxes[MONITOR]
    PresenceMonitor(routing, "Presence", contract=plane.contract, heartbeats=heartbeats, outbox=outbox)


class PresenceMonitor(Construct):
    """Watches devices by their connections and the `heartbeats` in its inbox, and writes to its `outbox`."""

    def __init__(
        self, scope: Construct, id: str, *, contract: Contract, heartbeats: sqs.IQueue, outbox: sqs.IQueue
    ) -> None:
        super().__init__(scope, id)
        environment = environment_of(self)
        settings = environment.presence
        self._contract = contract
        self._timers = find_queue(self, "TimersQueue", TIMERS)
        lifecycle = find_queue(self, "LifecycleQueue", LIFECYCLE)
        topic_rule(
            Construct(self, "Rule"),
            name=rule_name(environment.name, "presence"),
            description="Connections of devices to the presence monitor",
            sql=f"SELECT * FROM '{PRESENCE_TOPICS}'",  # noqa: S608 - of a constant only
            queues={"Lifecycle": lifecycle},
            # What SQS does not take now is rarely taken by another queue: the dead letters are alarmed on.
            errors=find_queue(self, "LifecycleDlq", f"{LIFECYCLE}-dlq"),
        )
        standing = allow_table(self, PRESENCE_TABLE, "Query", index=STANDING_INDEX)
        limits = {each.name: getattr(settings, each.name) for each in fields(PresenceLimits)}
        shared: dict[str, Any] = {
            "presence_table": environment.resource_name(PRESENCE_TABLE),
            "presence_limits": PresenceLimits(**limits),
            "timer_queue": self._timers.queue_url,
        }
        for source, queue in {
            PresenceSource.CONNECTIONS: lifecycle,
            PresenceSource.HEARTBEATS: heartbeats,
        }.items():
            recorder = RecorderSettings(**shared, source=source)
            self._function(source.capitalize(), "recorder", recorder, settings.recorder, sources=[queue])
        judge = PresenceJudgeSettings(**shared, outbox_queue=outbox.queue_url)
        self._function(
            "Timers",
            "timers",
            judge,
            settings.timers,
            sources=[self._timers],
            is_fed=settings.is_active,
            outbox=[outbox],
            statements=[standing],
            # A device has one timer; with a heartbeat a day its deadline is 432 delays of SQS away.
            may_recur=True,
        )
        index = allow_table(self, PRESENCE_TABLE, "Query", index=INDEX)
        reconciler = self._function(
            "Reconciler",
            "reconciler",
            judge,
            settings.reconciler,
            statements=[index, standing],
            outbox=[outbox],
        )
        Schedule(
            self,
            "Reconcile",
            name="presence-reconcile",
            function=reconciler,
            inputs=[{"buckets": list(range(BUCKETS)), "overdue_ms": 1_000 * OVERDUE_S}],
            is_enabled=settings.is_active,
        )

    def _function(
        self,
        id: str,
        entry: str,
        settings: Settings,
        size: FunctionSize,
        *,
        sources: Sequence[sqs.IQueue] = (),
        is_fed: bool = True,
        statements: Sequence[iam.PolicyStatement] = (),
        outbox: Sequence[sqs.IQueue] = (),
        may_recur: bool = False,
    ) -> PythonFunction:
        return PythonFunction(
            self,
            id,
            name=f"presence-{id.lower()}",
            module=f"parts.presence.{entry}",
            contract=self._contract,
            size=size,
            sources=sources,
            is_fed=is_fed,
            statements=[
                allow_table(self, PRESENCE_TABLE, "BatchGetItem", "GetItem", "PutItem"),
                allow_send(self._timers, *outbox),
                *statements,
            ],
            settings=settings,
            may_recur=may_recur,
        )
