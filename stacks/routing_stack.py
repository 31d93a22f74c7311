"""The way of events: rules of IoT Core, routers, the archive's writers. The stack holds no state."""

from __future__ import annotations

from collections.abc import Iterator

from aws_cdk import CfnOutput
from aws_cdk import aws_iot as iot
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from eventplane.contract import Contract, Forward, ParticipantKind, Priority
from eventplane.contract.participants import leads_down
from eventplane.function_settings import ArchiveWriterSettings, IngestErrorsSettings, LedgerWriterSettings
from eventplane.ingest import RULE_SELECT
from eventplane.interest.uplink import OPERATIONS
from eventplane.ledger import CONTRACTS, HANDOVERS, LEDGER, QUARANTINE
from eventplane.ledger import TAP as TAP_FOLDER
from eventplane.names import DOWNLINK, MONITOR
from eventplane.resource_names import (
    ANY,
    INGEST,
    LEDGER_QUEUE,
    RECEIPTS_OUTPUT,
    RECEIPTS_SUFFIX,
    RETIRED_OUTPUT,
    URGENT_INGEST,
    has_queue,
)
from eventplane.settings import written
from eventplane.topics import device_topic, urgent_rule
from stacks.constructs.archive import allow_writing, find_archive
from stacks.constructs.downlink import DownlinkFunctions, uplink_interest
from stacks.constructs.function_assets import dependencies_layer
from stacks.constructs.python_function import PythonFunction
from stacks.constructs.queues import allow_send, find_channel_queue, find_queue
from stacks.constructs.routers import Source, Targets, router
from stacks.constructs.rules import device_policy, topic_rule
from stacks.environment import Environment
from stacks.names import INGEST_ERRORS, LIFECYCLE, TAP, ingest_rule_name, pascal
from stacks.plane_stack import PlaneStack


class RoutingStack(PlaneStack):
    """The routers of devices and of cloud services, and what brings events to both."""

    def __init__(self, scope: Construct, environment: Environment, contract: Contract) -> None:
        super().__init__(scope, environment=environment, name="routing")
        dependencies_layer(self, environment.protocols)
        self.contract = contract
        self.archive = find_archive(self)
        self._ingest = find_queue(self, "IngestQueue", INGEST)
        self._urgent_ingest = find_queue(self, "UrgentIngestQueue", URGENT_INGEST)
        self._tap = find_queue(self, "TapQueue", TAP)
        self.services = {pascal(each.name): each for each in contract.of_kind(ParticipantKind.CLOUD_SERVICE)}
        self.inboxes = {
            each.name: find_channel_queue(self, f"{id}Inbox", each.inbox)
            for id, each in self.services.items()
            if has_queue(each.inbox)
        }
        self.outboxes = {
            each.name: find_channel_queue(self, f"{id}Outbox", each.outbox)
            for id, each in self.services.items()
        }
        has_downlink = DOWNLINK in contract.participants
        device_inbox = (
            find_channel_queue(self, "DeviceInbox", contract.device.inbox) if has_downlink else None
        )
        ledger = find_queue(self, "LedgerQueue", LEDGER_QUEUE)
        self.targets = Targets(self, contract, ledger, self.archive)
        for source in self._sources():
            router(self, source, self.targets, contract)
        self._writers(ledger)
        if device_inbox is not None:
            self._downlink(device_inbox)
        self._way_in()
        # What publishes a contract finds the deployment by these (contract/publish.py).
        CfnOutput(self, "ContractVersion", value=contract.version)
        CfnOutput(self, "Inboxes", value=written(self.targets.urls()))
        retired = [each.name for each in self.services.values() if each.retired]
        if has_downlink and not leads_down(contract.participants):
            # Its inbox goes with what reads it.
            retired.insert(0, contract.device.name)
        if retired:
            # Once this is deployed nothing writes to them any more (preflight, contract/publish.py).
            CfnOutput(self, RETIRED_OUTPUT, value=",".join(retired))

    def _sources(self) -> Iterator[Source]:
        """Yield what routers read: two lanes of the devices, urgent outboxes of services, and the others."""
        device, sizes = self.contract.device, self.plane
        yield from (
            Source(
                id="Device",
                name=device.name,
                address=device.outbox.address,
                priority=device.outbox.priority,
                queues=[self._ingest],
                size=sizes.device_router,
                participant=device.name,
            ),
            Source(
                id="DeviceUrgent",
                name=f"{device.name}-urgent",
                address=device.outbox.address,
                priority=Priority.URGENT,
                queues=[self._urgent_ingest],
                size=sizes.urgent_router,
                participant=device.name,
                # What fails shows in the others first.
                deploys_last=True,
            ),
        )
        shared = []
        for id, service in self.services.items():
            name, queue = service.name, self.outboxes[service.name]
            if service.outbox.priority is not Priority.URGENT:
                shared.append(queue)
                continue
            yield Source(
                id=id,
                name=name,
                address=service.outbox.address,
                priority=Priority.URGENT,
                queues=[queue],
                size=sizes.router,
                participant=name,
            )
        if shared:
            normal, size = Priority.NORMAL, sizes.router
            yield Source(
                id="Services", name="services", address=ANY, priority=normal, queues=shared, size=size
            )

    def _writers(self, ledger: sqs.IQueue) -> None:
        """Make the functions that archive what devices sent, what routers decided, and their contracts.

        Where presence is monitored, the writer of the tap counts what loud devices send.
        """
        archive, presence = self.archive, self.plane.presence
        traffic = (
            find_queue(self, "TrafficQueue", LIFECYCLE) if MONITOR in self.contract.participants else None
        )
        writer = Construct(self, "ArchiveWriter")
        PythonFunction(
            writer,
            "Writer",
            name="archive-writer",
            module="lambdas.archive.tap",
            contract=self.contract,
            size=self.plane.archive_writer,
            sources=[self._tap],
            statements=[
                *allow_writing(writer, archive, [TAP_FOLDER, QUARANTINE]),
                *([allow_send(traffic)] if traffic else []),
            ],
            settings=ArchiveWriterSettings(
                archive_bucket=archive.bucket_name,
                traffic_queue=traffic.queue_url if traffic else None,
                device_quota=presence.quota if traffic else None,
            ),
        )
        writer = Construct(self, "LedgerWriter")
        readers = [each.inbox for each in self.services.values() if each.inbox.asks_for_receipts]
        names = {f"{each.participant}{RECEIPTS_SUFFIX}": each.address for each in readers}
        if readers:
            CfnOutput(self, RECEIPTS_OUTPUT, value=",".join(names.values()))
        folders = [LEDGER, CONTRACTS, *([HANDOVERS, QUARANTINE] if readers else [])]
        PythonFunction(
            writer,
            "Writer",
            name="ledger-writer",
            module="lambdas.archive.ledger",
            contract=self.contract,
            size=self.plane.ledger_writer,
            sources=[ledger, *(find_queue(writer, pascal(each), each) for each in names)],
            statements=allow_writing(writer, archive, folders),
            settings=LedgerWriterSettings(
                archive.bucket_name,
                {self.plane.resource_name(name): inbox for name, inbox in names.items()} or None,
            ),
        )

    def _downlink(self, inbox: sqs.IQueue) -> None:
        """Make the functions that bring events to devices, and tell them which events the cloud wants."""
        contract = self.contract
        answers, outbox = self.inboxes[DOWNLINK], self.outboxes[DOWNLINK]
        # Not by the name of its class: the id is part of what is deployed.
        DownlinkFunctions(self, "Downlink", contract=contract, inbox=inbox, answers=answers, outbox=outbox)
        wants = contract.device.outbox.forward is Forward.WANTED and OPERATIONS in self.outboxes
        if wants and leads_down(contract.participants):
            uplink_interest(self, self.outboxes[OPERATIONS], contract)

    def _way_in(self) -> None:
        """Make the rules from IoT Core to two independent queues each: a router's and the tap.

        They pass on every publish with what IoT Core knows of its sender. Devices name the rule that they
        publish to (Basic Ingest), and so choose the lane. What a queue does not take goes to a function that
        brings it to the queues that did not get it.
        """
        errors = find_queue(self, "IngestErrorsQueue", INGEST_ERRORS)
        ways_in = [self._ingest, self._urgent_ingest, self._tap]
        PythonFunction(
            Construct(self, "IngestErrors"),
            "Handler",
            name="ingest-errors",
            module="lambdas.archive.ingest_errors",
            contract=self.contract,
            size=self.plane.ingest_errors,
            metrics_service=INGEST_ERRORS,
            sources=[errors],
            statements=[allow_send(*ways_in)],
            settings=IngestErrorsSettings(
                ways_in=tuple(queue.queue_url for queue in ways_in),
                letters_to=(self._ingest.queue_url, self._tap.queue_url),
                source=self.contract.device.outbox.address,
                contract=self.contract.version,
            ),
        )
        name = ingest_rule_name(self.plane.name)
        rules = {"Ingest": (name, self._ingest), "UrgentIngest": (urgent_rule(name), self._urgent_ingest)}
        policy = Construct(self, "Device")
        for id, (rule, queue) in rules.items():
            holder = Construct(self, id)
            topic_rule(
                holder,
                name=rule,
                description="Devices' outboxes to the router and, independently, to the archive",
                sql=f"SELECT {RULE_SELECT} FROM '{device_topic('+', 'outbox')}'",  # noqa: S608 - of constants only
                queues={"Ingest": queue, "Tap": self._tap},
                errors=errors,
            )
            # IoT Core acknowledges a publish to a rule that is not there, and drops it: a device may only
            # publish once there is one.
            policy.node.add_dependency(holder)
        if domain := self.plane.device_domain:
            iot.CfnDomainConfiguration(
                self,
                "DeviceDomain",
                domain_configuration_name=self.plane.resource_name("devices"),
                domain_name=domain.name,
                server_certificate_arns=[domain.certificate],
                service_type="DATA",
            )
            CfnOutput(self, "DeviceEndpoint", value=domain.name)
        CfnOutput(self, "IngestRule", value=name)
        CfnOutput(self, "DevicePolicy", value=device_policy(policy, name))
