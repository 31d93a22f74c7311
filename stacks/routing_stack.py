"""What moves events: the way in from IoT Core, the routers, the archive writer. It holds no state."""

from __future__ import annotations

from aws_cdk import CfnOutput
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from eventplane.contract import Channel, Contract, Forward, ParticipantKind, Priority
from eventplane.own_services import DOWNLINK, leads_down
from eventplane.presence import MONITOR
from eventplane.replay import REPLAY
from eventplane.resource_names import INGEST, URGENT_INGEST, has_queue
from eventplane.topics import urgent_rule
from eventplane.uplink_interest import OPERATIONS
from stacks.constructs.archive import find_archive
from stacks.constructs.archive_writer import ArchiveWriter, LedgerWriter
from stacks.constructs.device_policy import DevicePolicy
from stacks.constructs.downlink import Downlink
from stacks.constructs.durable_queue import find_queue
from stacks.constructs.function_assets import DependenciesLayer, function_code
from stacks.constructs.ingest_errors import IngestErrors
from stacks.constructs.ingest_rule import IngestRule, ingest_rule_name
from stacks.constructs.presence_monitor import PresenceMonitor
from stacks.constructs.queue_pair import find_channel_queue
from stacks.constructs.replay_function import ReplayFunction
from stacks.constructs.router_function import FOLDER, RouterFunction
from stacks.constructs.uplink_interest import UplinkInterest
from stacks.constructs.webhook_function import HTTP_SINK, WebhookFunction
from stacks.environment import Environment
from stacks.messaging_stack import INGEST_ERRORS, LEDGER_QUEUE, TAP
from stacks.names import RETIRED_OUTPUT, pascal
from stacks.plane_stack import PlaneStack, charge_to
from stacks.presence_stack import LIFECYCLE


class RoutingStack(PlaneStack):
    """One router function for the devices and one for each cloud service's outbox, all with the same code."""

    def __init__(self, scope: Construct, *, environment: Environment, contract: Contract) -> None:
        super().__init__(scope, environment=environment, name="routing")
        self._environment = environment
        archive = find_archive(self, "Archive", environment=environment)
        layer = DependenciesLayer(
            self, "Dependencies", environment=environment, protocols=environment.protocols
        ).version
        ingest = self._queue("IngestQueue", INGEST)
        urgent_ingest = self._queue("UrgentIngestQueue", URGENT_INGEST)
        tap = self._queue("TapQueue", TAP)
        ledger = self._queue("LedgerQueue", LEDGER_QUEUE)
        errors = self._queue("IngestErrorsQueue", INGEST_ERRORS)

        services = {pascal(each.name): each for each in contract.of_kind(ParticipantKind.CLOUD_SERVICE)}
        inboxes = {
            name: self._channel_queue(f"{name}Inbox", each.inbox)
            for name, each in services.items()
            if has_queue(each.inbox)
        }
        destinations = {
            each.inbox.address: inboxes[name]
            for name, each in services.items()
            if name in inboxes and not each.retired
        }
        elsewhere = [
            each.inbox for name, each in services.items() if name not in inboxes and not each.retired
        ]
        outboxes = {
            name: self._channel_queue(f"{name}Outbox", each.outbox) for name, each in services.items()
        }
        destinations |= {
            each.replies.address: self._channel_queue(f"{name}Replies", each.replies)
            for name, each in services.items()
            if each.replies is not None and not each.retired
        }
        device = contract.device
        has_downlink = DOWNLINK in contract.participants
        device_inbox = self._channel_queue("DeviceInbox", device.inbox) if has_downlink else None
        if device_inbox is not None and leads_down(contract.participants):
            destinations[device.inbox.address] = device_inbox
        size = environment.router
        urgent = environment.urgent_router
        sources = [
            ("Device", device.name, environment.device_router, device.outbox, device.outbox.priority, ingest),
            ("DeviceUrgent", f"{device.name}-urgent", urgent, device.outbox, Priority.URGENT, urgent_ingest),
            *(
                (name, each.name, size, each.outbox, each.outbox.priority, outboxes[name])
                for name, each in services.items()
            ),
        ]
        code = function_code(FOLDER, contract)
        for name, function, size, channel, priority, queue in sources:
            routing = RouterFunction(
                self,
                f"{name}Router",
                environment=environment,
                name=function,
                size=size,
                source=channel,
                priority=priority,
                source_queue=queue,
                destinations=destinations,
                elsewhere=elsewhere,
                ledger=ledger,
                archive=archive,
                code=code,
                layer=layer,
                # What fails shows in the others first.
                deploys_last=queue is urgent_ingest,
                is_urgent=queue is urgent_ingest or channel.priority is Priority.URGENT,
            )
            charge_to(routing, channel.participant)
        for name, service in services.items():
            if service.inbox.webhook:
                webhook = WebhookFunction(
                    self,
                    f"{name}Webhook",
                    environment=environment,
                    inbox=service.inbox,
                    inbox_queue=inboxes[name],
                    outbox_queue=outboxes[name],
                    archive=archive,
                    code=function_code(HTTP_SINK, contract),
                    layer=layer,
                )
                charge_to(webhook, service.name)
        ArchiveWriter(
            self,
            "ArchiveWriter",
            environment=environment,
            contract=contract,
            tap=tap,
            archive=archive,
            traffic=self._queue("TrafficQueue", LIFECYCLE) if MONITOR in contract.participants else None,
            layer=layer,
        )
        LedgerWriter(
            self,
            "LedgerWriter",
            environment=environment,
            contract=contract,
            ledger=ledger,
            archive=archive,
            layer=layer,
        )
        ReplayFunction(
            self,
            "Replay",
            environment=environment,
            contract=contract,
            orders=self._queue("ReplayQueue", REPLAY),
            destinations=destinations,
            elsewhere=elsewhere,
            ledger=ledger,
            archive=archive,
            layer=layer,
        )
        if MONITOR in contract.participants:
            PresenceMonitor(
                self,
                "Presence",
                environment=environment,
                contract=contract,
                heartbeats=inboxes[pascal(MONITOR)],
                outbox=outboxes[pascal(MONITOR)],
                layer=layer,
            )
        if device_inbox is not None:
            Downlink(
                self,
                "Downlink",
                environment=environment,
                contract=contract,
                inbox=device_inbox,
                answers=inboxes[pascal(DOWNLINK)],
                outbox=outboxes[pascal(DOWNLINK)],
                layer=layer,
            )
            wants = device.outbox.forward is Forward.WANTED and pascal(OPERATIONS) in services
            if wants and leads_down(contract.participants):
                UplinkInterest(
                    self,
                    "UplinkInterest",
                    environment=environment,
                    contract=contract,
                    outbox=outboxes[pascal(OPERATIONS)],
                    layer=layer,
                )
        lanes = {"Ingest": ingest, "UrgentIngest": urgent_ingest}
        IngestErrors(
            self,
            "IngestErrors",
            environment=environment,
            contract=contract,
            errors=errors,
            lanes=list(lanes.values()),
            tap=tap,
            layer=layer,
        )
        rule = ingest_rule_name(environment)
        names = {"Ingest": rule, "UrgentIngest": urgent_rule(rule)}
        rules = [
            IngestRule(
                self, id, environment=environment, name=names[id], ingest=queue, tap=tap, errors=errors
            )
            for id, queue in lanes.items()
        ]
        policy = DevicePolicy(self, "Device", environment=environment, rule=rule)
        # IoT Core acknowledges a publish to a rule that is not there, and drops it: a device may only publish
        # once there is one.
        policy.node.add_dependency(*rules)
        CfnOutput(self, "IngestRule", value=rule)
        CfnOutput(self, "DevicePolicy", value=policy.name)
        # What publishes a contract finds the deployment by these two (contract/publish.py).
        CfnOutput(self, "ContractVersion", value=contract.version)
        router = environment.resource_name(f"{FOLDER}-{contract.device.name}")
        CfnOutput(self, "DeviceRouterFunction", value=router)
        retired = [each.name for each in services.values() if each.retired]
        if has_downlink and not leads_down(contract.participants):
            # Its inbox goes with what reads it.
            retired.insert(0, device.name)
        if retired:
            # Once this is deployed nothing writes to them any more (stacks/removal.py).
            CfnOutput(self, RETIRED_OUTPUT, value=",".join(retired))

    def _queue(self, id: str, name: str) -> sqs.IQueue:
        return find_queue(self, id, environment=self._environment, name=name)

    def _channel_queue(self, id: str, channel: Channel) -> sqs.IQueue:
        return find_channel_queue(self, id, environment=self._environment, channel=channel)
