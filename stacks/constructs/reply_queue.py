"""The queue of a cloud service for the replies to what it asks."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from eventplane.contract import Channel
from eventplane.resource_names import channel_queue
from stacks.config import Environment
from stacks.constructs.customer_key import find_key
from stacks.constructs.durable_queue import DATA_KEY_REUSE, queue_name
from stacks.findings import PLAIN_HTTP, accept

_VISIBILITY = Duration.seconds(30)
"""A process that dies with a reply of another in hand delays that by so much."""


class ReplyQueue(Construct):
    """Without a dead-letter queue: a reply that nobody waits for any more is worth nothing."""

    def __init__(self, scope: Construct, id: str, *, environment: Environment, channel: Channel) -> None:
        super().__init__(scope, id)
        key = find_key(self, environment)
        self.queue = sqs.Queue(
            self,
            "Queue",
            queue_name=queue_name(environment, channel_queue(channel)),
            encryption=sqs.QueueEncryption.KMS if key else sqs.QueueEncryption.SQS_MANAGED,
            encryption_master_key=key,
            data_key_reuse=DATA_KEY_REUSE if key else None,
            enforce_ssl=not environment.is_emulated,
            removal_policy=environment.removal_policy,
            retention_period=Duration.seconds(channel.retention_s),
            visibility_timeout=_VISIBILITY,
        )
        accept(self, "SQS3", "a reply that nobody waits for any more is worth nothing")
        if environment.is_emulated:
            accept(self, "SQS4", PLAIN_HTTP)
