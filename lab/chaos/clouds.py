"""The clouds of a run: a stand-in without an emulator, and the deployed plane in the emulated cloud."""

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from contract.publish import ContractPublisher, find_deployment
from contract.scaffold import copy_contract, new_participant
from eventplane.contract import Contract, ParticipantKind
from eventplane.ordering import is_numbered
from eventplane.topics import urgent_rule
from eventplane_aws.rules import SQS_VISIBILITY
from lab.chaos.alarms import Observer, Watched, read_alarms
from lab.chaos.consumer import Arrivals
from lab.chaos.fault_proxy import FaultProxy, Outage, ProxyTarget
from lab.chaos.faults import ChaosFault, at_once, freeze, kill
from lab.chaos.schedule import SERVICES
from lab.chaos.worker import ARCHIVE, ARRIVALS, CONTRACT, READY, arrivals_file
from lab.cloud import ENVIRONMENT, ROOT, CloudEndpoint, start_synthesis
from lab.emulator import kill_functions, queued_messages, start_emulator
from lab.mosquitto import start_cloud_broker
from lab.network import LOOPBACK, free_port
from lab.plane import ROUTERS, VISIBILITY_S, deploy_plane, leads_to_inbox
from lab.process import Child, Supervisor
from lab.things import Authority, Thing
from lab.waiting import wait_until_none_remain
from operations import system


class ChaosCloud(ABC):
    """A cloud with the plane in it, whose processes belong to a supervisor.

    `description` says what is real in it; `patience_s` is how long nothing may arrive before what is missing
    counts as lost. Devices publish into `rule`. `children` are restarted when they end by themselves.
    """

    description: str
    patience_s: float
    rule: str

    def __init__(self, contract: Contract, arrivals: Path) -> None:
        self.contract = contract
        self._arrivals = arrivals
        arrivals.mkdir(parents=True)

    @abstractmethod
    def thing(self, home: str, directory: Path) -> Thing:
        """Provision a device called `home`."""

    @abstractmethod
    def faults(self) -> dict[str, ChaosFault]:
        """Return what can break in it, by kind."""

    @property
    @abstractmethod
    def children(self) -> Sequence[Child]: ...

    @abstractmethod
    def put_contract(self, contract: Contract) -> None:
        """Put another contract in force."""

    @abstractmethod
    def settle(self) -> bool:
        """Return when everything that it accepted is handled; False if that stands still."""

    @abstractmethod
    def fetch_archive(self) -> Path:
        """Return the archive, as a folder."""

    def arrivals(self, service: str) -> Arrivals:
        """Return what the cloud service receives."""
        return Arrivals(self._arrivals / f"{service}.jsonl")

    def wait_for(self, homes: Sequence[str]) -> None:  # noqa: B027 - nothing to wait for by default
        """Return when it knows that `homes` are connected, or when that does not change any more."""

    def send_from_carers(self, text: str) -> None:
        """Put an event into the outbox of the carers."""
        raise NotImplementedError(f"only the emulated cloud has a downlink: {text}")

    def is_idle(self) -> bool:
        """Return whether it is known that no event is on its way any more."""
        return False

    def watched(self) -> Watched | None:
        """Return its alarms and the metrics recorded until now; None where nothing is recorded."""
        return None

    def close(self) -> None:  # noqa: B027 - nothing to close by default
        """End what is no process of the supervisor."""


class StandIn(ChaosCloud):
    """Mosquitto in IoT Core's place, and the functions' own code over files (`lab.chaos.worker`).

    Real are mutual TLS, the broker's acknowledgements, the router, the archive writer and their records. As
    deployed, the urgent ingest rule has functions of its own: alarms do not wait behind other events. It has
    no queues, buckets, event source mappings and IAM.
    """

    description = "Mosquitto in IoT Core's place, the functions' own code over files"
    rule = "ingest"
    patience_s = 30.0

    _rules: Final = (rule, urgent_rule(rule))

    _DRAIN_S: Final = 600.0
    """How long a worker may take to drain."""

    def __init__(self, supervisor: Supervisor, contract: Contract) -> None:
        self._folder = supervisor.run_dir / "cloud"
        super().__init__(contract, self._folder / ARRIVALS)
        self.put_contract(contract)
        self._authority = Authority(self._folder / "certificates")
        self._broker = start_cloud_broker(supervisor, self._folder, self._authority)
        self._workers = [self._start_worker(supervisor, each) for each in self._rules]

    def _start_worker(self, supervisor: Supervisor, rule: str) -> Child:
        port = str(self._broker.plain_port)
        return supervisor.start(
            f"worker-{rule}",
            [sys.executable, "-m", "lab.chaos.worker", str(self._folder), port, rule],
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "POWERTOOLS_SERVICE_NAME": "chaos",
                "POWERTOOLS_LOG_LEVEL": "ERROR",
                "POWERTOOLS_METRICS_DISABLED": "true",
            },
            ready=READY,
        )

    def thing(self, home: str, directory: Path) -> Thing:  # noqa: ARG002 - the authority has one
        return self._authority.thing(home, self._broker.port)

    def faults(self) -> dict[str, ChaosFault]:
        return {
            "router-kill": kill(*self._workers),
            "router-stop": freeze(*self._workers),
            "cloud-stop": freeze(self._broker.child),
        }

    @property
    def children(self) -> Sequence[Child]:
        return self._broker.child, *self._workers

    def put_contract(self, contract: Contract) -> None:
        unfinished = self._folder / f"{CONTRACT}.unfinished"
        unfinished.write_bytes(contract.canonical)
        unfinished.replace(self._folder / CONTRACT)

    def settle(self) -> bool:
        """Let the workers drain, and end them."""
        for each in self._workers:
            each.start()
            each.stop(self._DRAIN_S)
        return True

    def arrivals(self, service: str) -> Arrivals:
        return Arrivals(*(arrivals_file(self._arrivals, rule, service) for rule in self._rules))

    def fetch_archive(self) -> Path:
        return self._folder / ARCHIVE


class Emulated(ChaosCloud):
    """The plane in the emulated cloud, read by consumers in a process of their own."""

    description = "the plane as cdk deploys it, in the emulated cloud"
    patience_s = 4.0 * VISIBILITY_S

    def __init__(self, supervisor: Supervisor, contract: Contract) -> None:
        super().__init__(contract, supervisor.run_dir.resolve() / "arrivals")
        self._plane = plane = deploy_plane(supervisor, self._start(supervisor))
        self.rule = plane.outputs["IngestRule"]
        self._archive = supervisor.run_dir / "archive"
        plane.shorten_visibility()
        ordered = {
            each.name for each in contract.participants.values() if is_numbered(contract, each.inbox.address)
        }
        if ordered:
            self.put_contract(contract)  # the one that the routers were deployed with keeps no order
        for each in ordered:
            # Its reader holds thousands: to extend each takes the emulator longer than to deliver it.
            plane.set_visibility(plane.inboxes[each], SQS_VISIBILITY.most)
        inboxes = [f"{service}={url}" for service, url in plane.inboxes.items()]
        self._consumers = supervisor.start(
            "consumers",
            [sys.executable, "-m", "lab.chaos.consumer", str(self._arrivals), *inboxes],
            env={**plane.cloud.environment(), "PYTHONPATH": str(ROOT)},
        )

    def _start(self, supervisor: Supervisor) -> CloudEndpoint:
        return start_emulator(supervisor)

    @property
    def _seen_by_functions(self) -> CloudEndpoint:
        return self._plane.cloud

    def thing(self, home: str, directory: Path) -> Thing:
        return self._plane.provision(home, directory)

    def faults(self) -> dict[str, ChaosFault]:
        """Return the kills of functions in the middle of their work, and of the consumers."""
        cloud = self._seen_by_functions
        return {
            "router-kill": at_once(lambda: kill_functions(cloud, *ROUTERS)),
            "archive-writer-kill": at_once(lambda: kill_functions(cloud, "archive-writer")),
            "consumer-kill": kill(self._consumers),
        }

    @property
    def children(self) -> Sequence[Child]:
        return (self._consumers,)

    def put_contract(self, contract: Contract) -> None:
        """Publish it, as an operator does."""
        client = self._plane.cloud.client
        ContractPublisher(find_deployment(ENVIRONMENT, client), self._plane.tables, system.now).publish(
            contract
        )

    def wait_for(self, homes: Sequence[str]) -> None:
        """Events for a home that is not known to be connected would be sent an hour later."""
        wait_until_none_remain(lambda: len(homes) - len(self._plane.present(homes)))

    def send_from_carers(self, text: str) -> None:
        self._plane.send_from_carers(text)

    def settle(self) -> bool:
        """Wait until no queue of the plane holds a message."""
        return wait_until_none_remain(lambda: self._plane.count_messages(self._plane.queue_outputs))

    def fetch_archive(self) -> Path:
        self._plane.fetch_archive(self._archive)
        return self._archive


class Redeployable(Emulated):
    """The plane in the emulated cloud, which is deployed again in the middle of traffic.

    Each deployment adds a participant, and so gives every function another contract with its code: old and
    new processes work side by side until CloudFormation has replaced the last function.
    """

    def __init__(self, supervisor: Supervisor, contract: Contract) -> None:
        super().__init__(supervisor, contract)
        self._folder = supervisor.run_dir.resolve() / "deployments"
        self._contract_file = copy_contract(self._folder / "contract")
        self._deployments = 0

    def faults(self) -> dict[str, ChaosFault]:
        return super().faults() | {"deployment": ChaosFault(self._deploy)}

    def _deploy(self) -> None:
        self._deployments += 1
        guest = f"guest-{self._deployments}"
        new_participant(self._contract_file, guest, ParticipantKind.CLOUD_SERVICE).write()
        with Supervisor(self._folder / guest) as supervisor:
            context = {"contract": str(self._contract_file)}
            cloud = self._plane.cloud
            synthesis = start_synthesis(supervisor, cloud.account, cloud.region, context=context)
            deploy_plane(supervisor, cloud, synthesis)


BROKEN_INBOX: Final = "family-app"
"""Whose inbox queue fails while all others work: alarms go there and to the alarm centre."""

_SCHEDULED: Final = ("downlink", "canary")
"""In the names of schedules. Those of presence stay off, as its timers do in the local environment."""

_SCHEDULE: Final = ("Name", "ScheduleExpression", "FlexibleTimeWindow", "Target")
"""What an update of a schedule repeats."""


class Faulty(Emulated):
    """The plane in the emulated cloud, whose functions call AWS through a proxy that can fail.

    Consumers, deployment and devices reach the cloud itself.
    """

    patience_s = 1_000.0
    """Longer than a message waits to be tried again (`eventplane/retries.py`)."""
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
        """Let schedules call their functions as when deployed elsewhere: some outages end only by them."""
        client = self._plane.cloud.client("scheduler")
        for page in client.get_paginator("list_schedules").paginate():
            for each in page["Schedules"]:
                if any(name in each["Name"] for name in _SCHEDULED):
                    schedule = client.get_schedule(Name=each["Name"])
                    client.update_schedule(**{name: schedule[name] for name in _SCHEDULE}, State="ENABLED")

    def _start(self, supervisor: Supervisor) -> CloudEndpoint:
        port = free_port()
        self._proxy = self._running.enter_context(FaultProxy(f"http://{LOOPBACK}:{port}"))
        return start_emulator(supervisor, port=port, functions_call=self._proxy.url)

    @property
    def _seen_by_functions(self) -> CloudEndpoint:
        return replace(self._plane.cloud, url=self._proxy.url)

    def thing(self, home: str, directory: Path) -> Thing:
        self._plane.register(home)
        return super().thing(home, directory)

    def faults(self) -> dict[str, ChaosFault]:
        """Return those of `Emulated`, and every failure of every service."""
        targets = {
            "s3": ProxyTarget("s3"),
            "dynamodb": ProxyTarget("dynamodb"),
            "sqs": ProxyTarget("sqs"),
            "inbox": ProxyTarget("sqs", self._plane.inboxes[BROKEN_INBOX].rpartition("/")[2]),
            "iot": ProxyTarget("iotdata"),
        }
        return super().faults() | {
            f"{service}-{failure}": ChaosFault(
                partial(self._proxy.begin, targets[service], failure),
                partial(self._proxy.end, targets[service]),
            )
            for service in SERVICES
            for failure in Outage
        }

    def is_idle(self) -> bool:
        """Return whether the inboxes, and every queue on the way to them, are empty."""
        found = queued_messages(self._plane.cloud)
        waiting = (messages for name, messages in found.items() if leads_to_inbox(name))
        return bool(found) and not any(waiting)

    def watched(self) -> Watched:
        self._observer.read_logs()
        return Watched(self._alarms, self._observer.metrics)

    def close(self) -> None:
        self._running.close()
