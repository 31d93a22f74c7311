"""The plane as `cdk deploy` makes it, in the emulated cloud, read by consumers in a process of their own."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from contract.publish import Publisher, find_deployment
from eventplane.contract import Contract
from eventplane.ordering import is_numbered
from eventplane_client.sqs import MAX_VISIBILITY_S
from lambdas.downlink.devices import Presence
from local.chaos.alarms import Watched
from local.chaos.arrivals import Arrivals
from local.chaos.consumer import ORDERED
from local.chaos.drain import wait_until_nothing_waits
from local.chaos.faults import Fault, Kill, Moment
from local.chaos.functions import kill_functions
from local.cloud import CloudEndpoint
from local.demo.archive import fetch
from local.demo.carers import CARERS
from local.demo.plane import ROUTERS, deploy_plane
from local.deploy import ROOT
from local.emulator import start_emulator
from local.process import Child, Supervisor
from local.things import Thing, provision
from stacks.names import outbox_url_output

ARCHIVE_WRITER: Final = "archive-writer"

VISIBILITY_S: Final = 35
"""For so long a source queue hides what a function works on; deployed it is six times the function's timeout,
180 s. Longer than one timeout, or a function that is only slow would be taken for dead."""

HIDING_QUEUES: Final = ("IngestUrl", "TapUrl", "LedgerUrl")
"""The source queues that hide messages for minutes as deployed."""

_SOURCES: Final = (*HIDING_QUEUES, "UrgentIngestUrl")


class Emulated:
    """Starts emulator, plane and consumers beneath `supervisor.run_dir`."""

    description = "the plane as cdk deploys it, in the emulated cloud"
    patience_s = 4.0 * VISIBILITY_S

    def __init__(self, supervisor: Supervisor, contract: Contract) -> None:
        self._plane = deploy_plane(supervisor, self._start(supervisor))
        self.contract = contract
        self.rule = self._plane.outputs["IngestRule"]
        self._folder = supervisor.run_dir.resolve() / "arrivals"
        self._folder.mkdir()
        self._archive = supervisor.run_dir / "archive"
        sqs = self._plane.cloud.client("sqs")
        for source in HIDING_QUEUES:
            url = self._plane.outputs[source]
            sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": str(VISIBILITY_S)})
        self._ordered = {
            each.name for each in contract.participants.values() if is_numbered(contract, each.inbox.address)
        }
        if self._ordered:
            self.put_contract(contract)  # what the routers were deployed with keeps no order
        for each in self._ordered:
            # Its reader holds thousands: to extend each takes the emulator longer than to deliver it.
            sqs.set_queue_attributes(
                QueueUrl=self._plane.inboxes[each], Attributes={"VisibilityTimeout": str(MAX_VISIBILITY_S)}
            )
        inboxes = [
            f"{service}={url}{ORDERED if service in self._ordered else ''}"
            for service, url in self._plane.inboxes.items()
        ]
        self._consumers = supervisor.start(
            "consumers",
            [sys.executable, "-m", "local.chaos.consumer", str(self._folder), *inboxes],
            env={**self._plane.cloud.environment(), "PYTHONPATH": str(ROOT)},
        )

    def _start(self, supervisor: Supervisor) -> CloudEndpoint:
        return start_emulator(supervisor)

    @property
    def _seen_by_functions(self) -> CloudEndpoint:
        return self._plane.cloud

    def thing(self, home: str, directory: Path) -> Thing:
        """A registered thing with its certificate."""
        return provision(
            self._plane.cloud, home, policy=self._plane.outputs["DevicePolicy"], directory=directory
        )

    def faults(self) -> dict[str, Fault]:
        """What can break: functions in the midst of their work, and the consumers."""
        cloud = self._seen_by_functions
        return {
            "router-kill": Moment(lambda: kill_functions(cloud, *ROUTERS)),
            "archive-writer-kill": Moment(lambda: kill_functions(cloud, ARCHIVE_WRITER)),
            "consumer-kill": Kill(self._consumers),
        }

    @property
    def children(self) -> Sequence[Child]:
        """The consumers."""
        return (self._consumers,)

    def put_contract(self, contract: Contract) -> None:
        """Publish it, as an operator does."""
        client = self._plane.cloud.client
        Publisher(find_deployment("local", client), client("dynamodb")).publish(contract)

    def wait_for(self, homes: Sequence[str]) -> bool:
        """What comes before a home is known to be connected goes down to it an hour later."""
        presence = Presence(self._plane.cloud.client("dynamodb"), self._plane.outputs["PresenceTable"])
        return wait_until_nothing_waits(lambda: len(homes) - len(presence.present(homes)))

    def tell(self, text: str) -> None:
        """As the carers' program does; their outbox is a queue."""
        url = self._plane.outputs[outbox_url_output(CARERS)]
        self._plane.cloud.client("sqs").send_message(QueueUrl=url, MessageBody=text)

    def arrivals(self, service: str) -> Arrivals:
        """What `service` receives."""
        return Arrivals(self._folder / f"{service}.jsonl")

    def is_idle(self) -> bool:
        """Nobody looks: a call to an emulated queue goes through all that it holds."""
        return False

    def settle(self) -> bool:
        """Return when no queue of the plane holds a message any more; False: when they stand still."""
        sqs = self._plane.cloud.client("sqs")
        counts = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        names = [*_SOURCES, *self._plane.inbox_outputs.values()]

        def messages() -> int:
            answers = (
                sqs.get_queue_attributes(QueueUrl=self._plane.outputs[name], AttributeNames=counts)
                for name in names
            )
            return sum(int(answer["Attributes"][count]) for answer in answers for count in counts)

        return wait_until_nothing_waits(messages)

    def watched(self) -> Watched | None:
        """Return None: nobody records metrics."""
        return None

    def close(self) -> None:
        """Everything here is a process."""

    def fetch_archive(self) -> Path:
        """Copied from its bucket."""
        plane = self._plane
        fetch(plane.cloud.client("s3"), plane.outputs["ArchiveBucket"], self._archive, lambda *_: None)
        return self._archive
