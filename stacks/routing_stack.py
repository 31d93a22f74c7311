"""What moves events: the way in from IoT Core, the routers, the archive writer. It holds no state."""

from __future__ import annotations

from aws_cdk import CfnOutput
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from eventplane.contract import Channel, Contract, ParticipantKind
from stacks.config import Environment
from stacks.constructs.archive import find_archive
from stacks.constructs.archive_writer import ArchiveWriter
from stacks.constructs.device_policy import DevicePolicy
from stacks.constructs.durable_queue import find_queue
from stacks.constructs.function_assets import DependenciesLayer, function_code
from stacks.constructs.ingest_rule import IngestRule
from stacks.constructs.queue_pair import find_channel_queue
from stacks.constructs.router_function import FOLDER, RouterFunction
from stacks.messaging_stack import INGEST, INGEST_ERRORS, TAP
from stacks.names import pascal
from stacks.plane_stack import PlaneStack


class RoutingStack(PlaneStack):
    """One router function for the devices and one for each cloud service's outbox, all with the same code."""

    def __init__(self, scope: Construct, *, environment: Environment, contract: Contract) -> None:
        super().__init__(scope, environment=environment, name="routing")
        self._environment = environment
        archive = find_archive(self, "Archive", environment=environment)
        layer = DependenciesLayer(self, "Dependencies", environment=environment).version
        ingest = self._queue("IngestQueue", INGEST)
        tap = self._queue("TapQueue", TAP)

        services = {pascal(each.name): each for each in contract.of_kind(ParticipantKind.CLOUD_SERVICE)}
        inboxes = {
            service.inbox.address: self._channel_queue(f"{name}Inbox", service.inbox)
            for name, service in services.items()
        }
        sources = {"Device": (contract.device.outbox, ingest)} | {
            name: (service.outbox, self._channel_queue(f"{name}Outbox", service.outbox))
            for name, service in services.items()
        }
        code = function_code(FOLDER, contract)
        for name, (channel, queue) in sources.items():
            RouterFunction(
                self,
                f"{name}Router",
                environment=environment,
                source=channel,
                source_queue=queue,
                destinations=inboxes,
                archive=archive,
                code=code,
                layer=layer,
            )
        ArchiveWriter(
            self,
            "ArchiveWriter",
            environment=environment,
            contract=contract,
            tap=tap,
            archive=archive,
            layer=layer,
        )
        rule = IngestRule(
            self,
            "Ingest",
            environment=environment,
            ingest=ingest,
            tap=tap,
            errors=self._queue("IngestErrorsQueue", INGEST_ERRORS),
        )
        policy = DevicePolicy(self, "Device", environment=environment, rule=rule.name)
        CfnOutput(self, "IngestRule", value=rule.name)
        CfnOutput(self, "DevicePolicy", value=policy.name)
        CfnOutput(self, "ContractVersion", value=contract.version)

    def _queue(self, id: str, name: str) -> sqs.IQueue:
        return find_queue(self, id, environment=self._environment, name=name)

    def _channel_queue(self, id: str, channel: Channel) -> sqs.IQueue:
        return find_channel_queue(self, id, environment=self._environment, channel=channel)
