"""The plane in the emulated cloud, whose functions call AWS through a proxy that can fail."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from eventplane.contract import Contract
from eventplane.fleet import FleetTable, change, made
from local.chaos.alarms import Watched, read_alarms
from local.chaos.emulated import Emulated
from local.chaos.fault_proxy import FaultProxy, Outage, Target, Trouble
from local.chaos.faults import Fault
from local.chaos.observer import Observer
from local.cloud import CloudEndpoint
from local.emulator import queued_messages, start_emulator
from local.ports import LOOPBACK, free_port
from local.process import Supervisor
from local.services import utc_now
from local.things import Thing

BROKEN_INBOX: Final = "family-app"
"""Whose inbox queue fails while all others are well: alarms go there and to the alarm centre."""

_SCHEDULED: Final = ("downlink", "canary")
"""In the names of schedules. Those of presence stay off, as its timers do in the local environment."""

_NOT_ON_THE_WAY: Final = ("-dlq", "presence", "connections", "downlink-work", "replies")
"""In the names of queues whose messages lead to no event of a service: dead letters, timers, observations."""

_KEPT: Final = ("Name", "ScheduleExpression", "FlexibleTimeWindow", "Target")

SERVICES: Final = ("s3", "dynamodb", "sqs", "inbox", "iot")
"""What can fail: SQS as a whole, or (`inbox`) the queue of `BROKEN_INBOX` only."""


class Faulty(Emulated):
    """As `Emulated`. Consumers, deployment and devices reach the cloud itself; only its functions do not."""

    patience_s = 1_000.0
    """Longer than a message waits to be tried again (`lambdas/common/backoff.py`)."""
    description = "the plane as cdk deploys it, in the emulated cloud, whose AWS API fails for its functions"

    def __init__(self, supervisor: Supervisor, contract: Contract) -> None:
        self._running = ExitStack()
        super().__init__(supervisor, contract)
        self._enable_schedules()
        self._alarms = read_alarms(supervisor.run_dir / "cdk.out")
        queues = {
            value
            for alarm in self._alarms
            for term in alarm.terms.values()
            if term.key
            for name, value in term.key[2]
            if name == "QueueName"
        }
        log = supervisor.run_dir / "emulator.log"
        self._observer = self._running.enter_context(Observer(self._plane.cloud, queues, log))

    def _enable_schedules(self) -> None:
        """Let the schedules call their functions as deployed elsewhere: some outages end by them only."""
        client = self._plane.cloud.client("scheduler")
        for page in client.get_paginator("list_schedules").paginate():
            for each in page["Schedules"]:
                if any(name in each["Name"] for name in _SCHEDULED):
                    schedule = client.get_schedule(Name=each["Name"])
                    kept = {name: schedule[name] for name in _KEPT}
                    client.update_schedule(**kept, State="ENABLED")

    def _start(self, supervisor: Supervisor) -> CloudEndpoint:
        port = free_port()
        self._proxy = self._running.enter_context(FaultProxy(f"http://{LOOPBACK}:{port}"))
        return start_emulator(supervisor, port=port, functions_call=self._proxy.url)

    @property
    def _seen_by_functions(self) -> CloudEndpoint:
        return replace(self._plane.cloud, url=self._proxy.url)

    def thing(self, home: str, directory: Path) -> Thing:
        """A registered thing with its certificate, in the fleet's list, so that events may go down to it."""
        registry = FleetTable(self._plane.cloud.client("dynamodb"), self._plane.outputs["FleetTable"])
        device = made(home, int(utc_now().timestamp() * 1_000))
        change(registry, home, lambda found: found or device)
        return super().thing(home, directory)

    def faults(self) -> dict[str, Fault]:
        """Those of `Emulated`, and every trouble of every service."""
        targets = {
            "s3": Target("s3"),
            "dynamodb": Target("dynamodb"),
            "sqs": Target("sqs"),
            "inbox": Target("sqs", self._plane.inboxes[BROKEN_INBOX].rpartition("/")[2]),
            "iot": Target("iotdata"),
        }
        return super().faults() | {
            f"{service}-{trouble}": Outage(self._proxy, targets[service], trouble)
            for service in SERVICES
            for trouble in Trouble
        }

    def is_idle(self) -> bool:
        """Whether every queue is empty that an event may be in on its way to an inbox, and the inboxes."""
        found = queued_messages(self._plane.cloud)
        return bool(found) and not any(
            messages for name, messages in found.items() if not any(part in name for part in _NOT_ON_THE_WAY)
        )

    def watched(self) -> Watched:
        """The deployed alarms, and the metrics since the deployment."""
        self._observer.read_logs()
        return Watched(self._alarms, self._observer.metrics)

    def close(self) -> None:
        """End proxy and observer."""
        self._running.close()
