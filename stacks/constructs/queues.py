"""Queues that lose nothing: encrypted, over TLS only, each with a dead-letter queue of its own type."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from eventplane import resource_names
from eventplane.contract import Channel, Ordering, Priority
from eventplane.contract.schedules import most_receives
from eventplane.resource_names import dead_letter_queue
from eventplane.retries import ROUTINE
from eventplane_aws.rules import SQS_RETENTION
from stacks.constructs.permissions import PLAIN_HTTP, accept, allow, arn, find_key
from stacks.plane_stack import OneOfStack, environment_of

DEAD_LETTER_RETENTION: Final = Duration.seconds(SQS_RETENTION.most)
"""The longest that SQS allows: whoever looks after the plane may be on holiday. In a standard queue it
counts from when a message was first sent, not from when it became a dead letter (Amazon SQS guide): what was
tried for ten days is kept for four more."""

DATA_KEY_REUSE: Final = Duration.hours(1)
"""How long SQS goes on with one data key. Each queue asks the customer's key once in that time for each role
that writes or reads it: a dozen queues at about $0.10 a month, where the default of 5 minutes costs $1."""

_REPLY_VISIBILITY: Final = Duration.seconds(30)
"""A process that dies with a reply of another in hand delays that by so much."""


class DurableQueue(Construct):
    """The queue called `name` and its dead-letter queue.

    `name` and `dead_letters_name` are their full names. `priority` says how soon somebody has to know that
    nobody reads it (`age_alarm`); in one that `is_ordered`, what follows waits as well.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        name: str,
        *,
        visibility: Duration,
        retention: Duration = DEAD_LETTER_RETENTION,
        max_receives: int = ROUTINE.most_receives,
        is_fifo: bool = False,
        priority: Priority = Priority.NORMAL,
        is_ordered: bool = False,
    ) -> None:
        super().__init__(scope, id)
        environment = environment_of(self)
        self.name = resource_names.queue_name(environment.name, name, is_fifo=is_fifo)
        self.dead_letters_name = dead_letter_queue(self.name)
        self.is_urgent = priority is Priority.URGENT
        self.is_ordered = is_ordered
        alarms = environment.alarms
        age_s = alarms.blocked_s if is_ordered else alarms.urgent_age_s if self.is_urgent else alarms.age_s
        self.age_alarm = Duration.seconds(age_s)
        # SQS refuses an explicit `false`.
        queue = partial(_encrypted_queue(self), fifo=True if is_fifo else None)
        self.dead_letters = queue(
            "DeadLetters", queue_name=self.dead_letters_name, retention_period=DEAD_LETTER_RETENTION
        )
        self.queue = queue(
            "Queue",
            queue_name=self.name,
            # Each group at its own pace: the whole queue would share 300 requests a second otherwise. A copy
            # of an event is of the same group.
            deduplication_scope=sqs.DeduplicationScope.MESSAGE_GROUP if is_fifo else None,
            fifo_throughput_limit=sqs.FifoThroughputLimit.PER_MESSAGE_GROUP_ID if is_fifo else None,
            retention_period=retention,
            visibility_timeout=visibility,
            dead_letter_queue=sqs.DeadLetterQueue(max_receive_count=max_receives, queue=self.dead_letters),
        )


def channel_queue(scope: Construct, id: str, channel: Channel, visibility: Duration) -> DurableQueue:
    """Return the queue that carries `channel`, and keeps events as long as the contract says."""
    return DurableQueue(
        scope,
        id,
        resource_names.channel_queue(channel),
        visibility=visibility,
        retention=Duration.seconds(channel.retention_s),
        max_receives=most_receives(channel, channel.priority),
        is_fifo=resource_names.is_fifo(channel),
        priority=channel.priority,
        is_ordered=channel.ordering is Ordering.SOURCE,
    )


def reply_queue(scope: Construct, id: str, channel: Channel) -> sqs.Queue:
    """Return the queue for replies, without a dead-letter queue."""
    holder = Construct(scope, id)
    accept(holder, "SQS3", "a reply that nobody waits for any more is worth nothing")
    return _encrypted_queue(holder)(
        "Queue",
        queue_name=resource_names.queue_name(
            environment_of(scope).name, resource_names.channel_queue(channel)
        ),
        retention_period=Duration.seconds(channel.retention_s),
        visibility_timeout=_REPLY_VISIBILITY,
    )


def dead_letters_of(scope: Construct, id: str, name: str) -> sqs.Queue:
    """Return the dead-letter queue of what is called `name` and is no queue.

    Whoever writes to it is let in by its policy: it has one of its own, for a queue has one policy at most.
    """
    holder = Construct(scope, id)
    accept(holder, "SQS3", "it is a dead-letter queue, of what is no queue")
    return _encrypted_queue(holder, has_own_policy=True)(
        "Queue",
        queue_name=dead_letter_queue(environment_of(scope).resource_name(name)),
        retention_period=DEAD_LETTER_RETENTION,
        # No event is in it.
        removal_policy=RemovalPolicy.DESTROY,
    )


def _encrypted_queue(scope: Construct, *, has_own_policy: bool = False) -> Callable[..., sqs.Queue]:
    """Return a function that makes queues in `scope`, by their id and properties."""
    key = find_key(scope)
    environment = environment_of(scope)
    if environment.is_emulated:
        accept(scope, "SQS4", PLAIN_HTTP)

    def make(id: str, **properties: Any) -> sqs.Queue:
        queue = sqs.Queue(
            scope,
            id,
            encryption=sqs.QueueEncryption.KMS if key else sqs.QueueEncryption.SQS_MANAGED,
            encryption_master_key=key,
            data_key_reuse=DATA_KEY_REUSE if key else None,
            enforce_ssl=has_own_policy and not environment.is_emulated,
            **{"removal_policy": environment.removal_policy, **properties},
        )
        if not (environment.is_emulated or has_own_policy):
            TlsOnly.of(scope).add(queue)
        return queue

    return make


class TlsOnly(OneOfStack):
    """One policy for all queues of a stack: they refuse plain HTTP.

    A policy for each would be half of the resources of a stack, which AWS bounds. It denies, so `*`, which in
    a queue's policy is that queue, gives nobody anything, and no queue of another name slips through.
    """

    def __init__(self, stack: Stack, id: str) -> None:
        super().__init__(stack, id)
        self._urls: list[str] = []
        denied = iam.PolicyStatement(
            effect=iam.Effect.DENY,
            principals=[iam.AnyPrincipal()],
            actions=["sqs:*"],
            resources=["*"],
            conditions={"Bool": {"aws:SecureTransport": "false"}},
        )
        document = iam.PolicyDocument(statements=[denied])
        self._policy = sqs.CfnQueuePolicy(self, "Policy", policy_document=document, queues=[])

    def add(self, queue: sqs.IQueue) -> None:
        """Have `queue` refuse plain HTTP."""
        self._urls.append(queue.queue_url)
        self._policy.queues = self._urls


def find_queue(scope: Construct, id: str, name: str, *, is_fifo: bool = False) -> sqs.IQueue:
    """Return the queue called `name`, which another stack owns, found by its name.

    An export would do as well, until a participant leaves the contract: CloudFormation refuses to delete a
    queue whose export is still in use, and the stack that uses it is deployed later.
    """
    full_name = resource_names.queue_name(environment_of(scope).name, name, is_fifo=is_fifo)
    return sqs.Queue.from_queue_attributes(scope, id, queue_arn=arn(scope, "sqs", full_name), fifo=is_fifo)


def find_channel_queue(scope: Construct, id: str, channel: Channel) -> sqs.IQueue:
    """Return the queue that carries `channel`, which another stack owns."""
    name = resource_names.channel_queue(channel)
    return find_queue(scope, id, name, is_fifo=resource_names.is_fifo(channel))


def find_channel_dead_letters(scope: Construct, id: str, channel: Channel) -> sqs.IQueue:
    """Return the dead-letter queue of the queue that carries `channel`."""
    name = dead_letter_queue(resource_names.channel_queue(channel))
    return find_queue(scope, id, name, is_fifo=resource_names.is_fifo(channel))


def allow_receive(*queues: sqs.IQueue) -> iam.PolicyStatement:
    """Return a statement for a role that may read `queues`."""
    actions = ["ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility", "GetQueueAttributes"]
    if environment_of(queues[0]).is_emulated:
        # AWS asks for the actions above; the emulator asks for what was called.
        actions += ["DeleteMessageBatch", "ChangeMessageVisibilityBatch"]
    return allow([f"sqs:{each}" for each in actions], [queue.queue_arn for queue in queues])


def allow_send(*queues: sqs.IQueue) -> iam.PolicyStatement:
    """Return a statement for a role that may write to `queues`."""
    actions = ["sqs:SendMessage"]
    if environment_of(queues[0]).is_emulated:
        # AWS knows no such action and asks for the one above; the emulator asks for what was called.
        actions.append("sqs:SendMessageBatch")
    return allow(actions, [queue.queue_arn for queue in queues])
