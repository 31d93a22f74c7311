"""The two queues of a cloud service: it writes its outbox, and reads its inbox."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from eventplane import presence
from eventplane.contract import Channel, Participant, Transport
from stacks.config import Environment
from stacks.constructs.durable_queue import DurableQueue, find_queue


class QueuePair(Construct):
    """Inbox and outbox of `participant`, as the contract's channels say."""

    def __init__(
        self, scope: Construct, id: str, *, environment: Environment, participant: Participant
    ) -> None:
        super().__init__(scope, id)

        def channel_queue(id: str, channel: Channel, visibility: Duration) -> DurableQueue:
            return DurableQueue(
                self,
                id,
                environment=environment,
                name=_queue_name(channel),
                visibility=visibility,
                retention=Duration.seconds(channel.retention_s),
                max_receives=channel.max_receives,
                is_fifo=_is_fifo(channel),
            )

        self.inbox = channel_queue("Inbox", participant.inbox, _inbox_visibility(environment, participant))
        self.outbox = channel_queue("Outbox", participant.outbox, environment.router.visibility)


def find_channel_queue(
    scope: Construct, id: str, *, environment: Environment, channel: Channel
) -> sqs.IQueue:
    """The queue that carries `channel`, which another stack owns."""
    return find_queue(
        scope, id, environment=environment, name=_queue_name(channel), is_fifo=_is_fifo(channel)
    )


def _inbox_visibility(environment: Environment, participant: Participant) -> Duration:
    if participant.name == presence.MONITOR:  # read by functions of this plane
        return environment.presence.recorder.visibility
    return Duration.seconds(environment.inbox_visibility_s)


def _queue_name(channel: Channel) -> str:
    return channel.address.replace(".", "-")


def _is_fifo(channel: Channel) -> bool:
    return channel.transport is Transport.SQS_FIFO
