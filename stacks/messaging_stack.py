"""The queues: a pair for each cloud service of the contract, those on the way in, the one down, the orders to
replay."""

from __future__ import annotations

from typing import Final

from aws_cdk import CfnOutput, Duration
from constructs import Construct

from eventplane.contract import Channel, Contract, ParticipantKind, Priority
from eventplane.own_services import DOWNLINK, SUBSCRIBERS
from eventplane.replay import MAX_RECEIVES, REPLAY
from eventplane.resource_names import INGEST, URGENT_INGEST, channel_queue
from stacks.constructs.durable_queue import DurableQueue
from stacks.constructs.queue_pair import QueuePair
from stacks.constructs.reply_queue import ReplyQueue
from stacks.constructs.webhook_secret import WebhookSecret
from stacks.environment import Environment
from stacks.names import pascal
from stacks.plane_stack import PlaneStack
from stacks.settings import FunctionSize

TAP: Final = "tap"
"""The queue from the IoT rule to the archive writer."""

LEDGER_QUEUE: Final = "ledger"
"""The queue from the routers to the ledger writer."""

INGEST_ERRORS: Final = "ingest-errors"
"""The queue for what an IoT rule could not hand to the others."""


class MessagingStack(PlaneStack):
    """All queues of `contract`; they hold events, so they outlive the functions around them."""

    def __init__(self, scope: Construct, *, environment: Environment, contract: Contract) -> None:
        super().__init__(scope, environment=environment, name="messaging", holds_state=True)
        self._environment = environment
        outbox = contract.device.outbox
        self._queue("Ingest", outbox, environment.device_router, INGEST)
        self._queue("UrgentIngest", outbox, environment.urgent_router, URGENT_INGEST, Priority.URGENT)
        self._queue("Tap", outbox, environment.archive_writer, TAP)
        self._queue("Ledger", outbox, environment.ledger_writer, LEDGER_QUEUE)
        self._queue("IngestErrors", outbox, environment.ingest_errors, INGEST_ERRORS, Priority.URGENT)
        if DOWNLINK in contract.participants:
            self._queue("DeviceInbox", contract.device.inbox, environment.downlink.reader)
        replay = DurableQueue(
            self,
            "Replay",
            environment=environment,
            name=REPLAY,
            visibility=environment.replay.visibility,
            max_receives=MAX_RECEIVES,
        )
        self._output("Replay", replay)
        for participant in contract.of_kind(ParticipantKind.CLOUD_SERVICE):
            name = pascal(participant.name)
            pair = QueuePair(self, name, environment=environment, participant=participant)
            if pair.inbox is not None:
                self._output(f"{name}Inbox", pair.inbox)
            self._output(f"{name}Outbox", pair.outbox)
            if participant.replies is not None:
                queue = ReplyQueue(
                    self, f"{name}Replies", environment=environment, channel=participant.replies
                )
                CfnOutput(self, f"{name}RepliesUrl", value=queue.queue.queue_url)
            if participant.inbox.webhook or participant.name == SUBSCRIBERS:
                secret = WebhookSecret(
                    self, f"{name}Webhook", environment=environment, participant=participant.name
                )
                CfnOutput(self, f"{name}WebhookSecret", value=secret.name)

    def _queue(
        self,
        id: str,
        channel: Channel,
        reader: FunctionSize,
        name: str | None = None,
        priority: Priority = Priority.NORMAL,
    ) -> None:
        """A queue that carries the devices' `channel`, and keeps what the contract says of that."""
        queue = DurableQueue(
            self,
            id,
            environment=self._environment,
            name=name or channel_queue(channel),
            visibility=reader.visibility,
            retention=Duration.seconds(channel.retention_s),
            max_receives=channel.receives_at(priority),
            priority=priority,
        )
        self._output(id, queue)

    def _output(self, id: str, queue: DurableQueue) -> None:
        CfnOutput(self, f"{id}Url", value=queue.queue.queue_url)
        CfnOutput(self, f"{id}DlqUrl", value=queue.dead_letters.queue_url)
