"""The stacks that hold state: the archive, all queues and tables. They outlive the functions around them.

Other stacks find what is in them by names, not by exports, so that they can be deployed apart.
"""

from __future__ import annotations

from typing import Final

from aws_cdk import CfnOutput, Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from eventplane.contract import (
    Contract,
    Participant,
    ParticipantKind,
    Priority,
)
from eventplane.contract.schedules import most_receives
from eventplane.contract.subscription_table import SUBSCRIPTIONS_TABLE
from eventplane.interest.table import INTEREST_TABLE
from eventplane.names import DOWNLINK, OWN_SERVICES
from eventplane.resource_names import (
    INGEST,
    LEDGER_QUEUE,
    OWNER,
    RECEIPTS_SUFFIX,
    URGENT_INGEST,
    has_queue,
)
from stacks.constructs import queues, tables
from stacks.constructs.archive import archive, attestation, certificates, record_reads, work
from stacks.constructs.permissions import allow, allow_key
from stacks.constructs.queues import (
    DurableQueue,
    allow_receive,
    allow_send,
    find_channel_queue,
    find_queue,
    reply_queue,
)
from stacks.constructs.routers import allow_contract
from stacks.constructs.tables import allow_own_items
from stacks.environment import Environment
from stacks.names import INGEST_ERRORS, TAP, WORK, pascal
from stacks.plane_stack import PlaneStack, charge_to, environment_of

_ITEMS: Final = ("GetItem", "PutItem", "UpdateItem", "DeleteItem", "Query")
"""What programs do with their items; they update and query them with the client library of 0.3.0."""


class StateStack(PlaneStack):
    """A stack that is protected where data is kept."""

    def __init__(self, scope: Construct, environment: Environment, name: str) -> None:
        super().__init__(scope, environment=environment, name=name, holds_state=True)

    def output(self, id: str, value: str) -> None:
        """Name a resource to those who look for it."""
        CfnOutput(self, id, value=value)

    def output_queue(self, id: str, queue: DurableQueue) -> None:
        """Name a queue. Others are found by the names of these: a template has 200 outputs at most."""
        self.output(f"{id}Url", queue.queue.queue_url)


class ArchiveStack(StateStack):
    """The archive bucket, the one that jobs work in, and the keys that attest changes and sign."""

    def __init__(self, scope: Construct, environment: Environment) -> None:
        super().__init__(scope, environment, "archive")
        attestation(Construct(self, "Attestation"))
        certificates(Construct(self, "Certificates"))
        bucket = archive(Construct(self, "Archive"))
        if environment.records_reads:
            record_reads(Construct(self, "Reads"), bucket)
        self.output("ArchiveBucket", bucket.bucket_name)
        self.output("WorkBucket", work(Construct(self, "Work")).bucket_name)


class ContractStack(StateStack):
    """The table of published contracts: it outlives the routers, and changes without them.

    It is deployed first: its parameter makes a second plane of the account's region fail before it can do
    anything.
    """

    def __init__(self, scope: Construct, environment: Environment) -> None:
        super().__init__(scope, environment, "contract")
        ssm.StringParameter(self, "Owner", parameter_name=OWNER, string_value=environment.name)
        self.output("ContractsTable", tables.contracts_table(Construct(self, "Contracts")).table_name)


class DownlinkStack(StateStack):
    """Desired and reported state of devices, and the queue of what is due for them."""

    def __init__(self, scope: Construct, environment: Environment) -> None:
        super().__init__(scope, environment, "downlink")
        self.output("DesiredTable", tables.desired_table(Construct(self, "Desired")).table_name)
        work = DurableQueue(self, "Work", WORK, visibility=environment.downlink.reader.visibility)
        self.output_queue("DownlinkWork", work)


class MessagingStack(StateStack):
    """All queues of `contract`: a pair for each cloud service, those on the way in, and the one down."""

    def __init__(self, scope: Construct, environment: Environment, contract: Contract) -> None:
        super().__init__(scope, environment, "messaging")
        outbox = contract.device.outbox
        for id, name, size, priority in (
            ("Ingest", INGEST, environment.device_router, Priority.NORMAL),
            ("UrgentIngest", URGENT_INGEST, environment.urgent_router, Priority.URGENT),
            ("IngestErrors", INGEST_ERRORS, environment.ingest_errors, Priority.URGENT),
        ):
            queue = DurableQueue(
                self,
                id,
                name,
                visibility=size.visibility,
                retention=Duration.seconds(outbox.retention_s),
                max_receives=most_receives(outbox, priority),
                priority=priority,
            )
            self.output_queue(id, queue)
        for id, name, size in (
            ("Tap", TAP, environment.archive_writer),
            ("Ledger", LEDGER_QUEUE, environment.ledger_writer),
        ):
            # The proof is kept as long as SQS can, however soon the contract gives up devices' events.
            queue = DurableQueue(self, id, name, visibility=size.visibility)
            self.output_queue(id, queue)
        if DOWNLINK in contract.participants:
            visibility = environment.downlink.reader.visibility
            queue = queues.channel_queue(self, "DeviceInbox", contract.device.inbox, visibility)
            self.output_queue("DeviceInbox", queue)
        for participant in contract.of_kind(ParticipantKind.CLOUD_SERVICE):
            self._service(participant)

    def _service(self, participant: Participant) -> None:
        """The queues of a cloud service: it writes its outbox, and reads its inbox and replies.

        It has no inbox queue where a protocol that a package adds carries it. An outbox has its queue all the
        same: it feeds the router.
        """
        name = pascal(participant.name)
        inbox, outbox = participant.inbox, participant.outbox
        pair = Construct(self, name)
        charge_to(pair, participant.name)
        if has_queue(inbox):
            visibility = Duration.seconds(self.plane.visibility_s_of(participant))
            queue = queues.channel_queue(pair, "Inbox", inbox, visibility)
            self.output_queue(f"{name}Inbox", queue)
        queue = queues.channel_queue(pair, "Outbox", outbox, self.plane.router.visibility)
        self.output_queue(f"{name}Outbox", queue)
        if inbox.asks_for_receipts:
            size = self.plane.ledger_writer
            queue = DurableQueue(
                pair, "Receipts", f"{participant.name}{RECEIPTS_SUFFIX}", visibility=size.visibility
            )
            self.output_queue(f"{name}Receipts", queue)
        if participant.replies is not None:
            reply_queue(self, f"{name}Replies", participant.replies)


class ClientStack(StateStack):
    """Tables of the client library, and a policy for the program of each cloud service."""

    def __init__(self, scope: Construct, environment: Environment, contract: Contract) -> None:
        super().__init__(scope, environment, "client")
        for id, table in tables.client_tables(Construct(self, "Tables")).items():
            self.output(f"{id}Table", table.table_name)
        for service in contract.of_kind(ParticipantKind.CLOUD_SERVICE):
            if service.name not in OWN_SERVICES:
                _participant_policy(Construct(self, pascal(service.name)), service)


def _participant_policy(scope: Construct, participant: Participant) -> None:
    """A policy to attach to the role or user that `participant` runs as; the plane itself uses it nowhere.

    It may read its inbox, write its outbox, and keep what is its own.
    """
    environment = environment_of(scope)
    name, inbox = participant.name, participant.inbox
    boxes = {
        each.box: find_channel_queue(scope, each.box.capitalize(), each)
        for each in (inbox, participant.outbox, participant.replies)
        if each is not None and has_queue(each)
    }
    statements = [allow(["sqs:GetQueueUrl"], [each.queue_arn for each in boxes.values()])]
    if has_queue(inbox) and not inbox.webhook:
        # A webhook's inbox has its reader in the plane; one over another protocol has no queue.
        statements.append(allow_receive(boxes[inbox.box]))
    if inbox.asks_for_receipts:
        receipts = find_queue(scope, "Receipts", f"{name}{RECEIPTS_SUFFIX}")
        statements += [allow_send(receipts), allow(["sqs:GetQueueUrl"], [receipts.queue_arn])]
    statements += [
        allow_send(boxes[participant.outbox.box]),
        allow_own_items(scope, tables.FILTER, _ITEMS, f"{name}/*"),
        allow_own_items(scope, SUBSCRIPTIONS_TABLE, _ITEMS, name),
        allow_own_items(scope, INTEREST_TABLE, _ITEMS, name),
    ]
    if participant.replies is not None:
        # A requester reads its replies, and finds out who replies: by contract, subscriptions and interest.
        statements += [allow_receive(boxes[participant.replies.box]), *allow_contract(scope)]
    iam.ManagedPolicy(
        scope,
        "Policy",
        managed_policy_name=environment.resource_name(f"{name}-client"),
        description=f"What the program of {name} may do in the event plane.",
        statements=[*statements, *allow_key(scope)],
    )
