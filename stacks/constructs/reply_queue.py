"""The queue of a cloud service for the replies to what it asks."""

from __future__ import annotations

from aws_cdk import Duration
from constructs import Construct

from eventplane.contract import Channel
from eventplane.resource_names import channel_queue
from stacks.constructs.durable_queue import encrypted_queue, queue_name
from stacks.environment import Environment
from stacks.findings import accept

_VISIBILITY = Duration.seconds(30)
"""A process that dies with a reply of another in hand delays that by so much."""


class ReplyQueue(Construct):
    """Without a dead-letter queue: a reply that nobody waits for any more is worth nothing."""

    def __init__(self, scope: Construct, id: str, *, environment: Environment, channel: Channel) -> None:
        super().__init__(scope, id)
        self.queue = encrypted_queue(self, environment)(
            "Queue",
            queue_name=queue_name(environment, channel_queue(channel)),
            retention_period=Duration.seconds(channel.retention_s),
            visibility_timeout=_VISIBILITY,
        )
        accept(self, "SQS3", "a reply that nobody waits for any more is worth nothing")
