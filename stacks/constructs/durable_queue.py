"""A queue that loses nothing: encrypted, over TLS only, with a dead-letter queue of its own type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from aws_cdk import Duration, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from eventplane import resource_names
from eventplane.contract import Priority
from stacks.constructs.customer_key import find_key
from stacks.constructs.service_role import allow
from stacks.environment import Environment
from stacks.findings import PLAIN_HTTP, accept

DEAD_LETTER_RETENTION: Final = Duration.days(14)
"""The longest that SQS allows: whoever looks after the plane may be on holiday. In a standard queue it
counts from when a message was first sent, not from when it became a dead letter (Amazon SQS guide): what was
tried for ten days is kept for four more."""

DATA_KEY_REUSE: Final = Duration.hours(1)
"""How long SQS goes on with one data key. Each queue asks the customer's key once in that time for each role
that writes or reads it: a dozen queues at about $0.10 a month, where the default of 5 minutes costs $1."""


class DurableQueue(Construct):
    """One queue and its dead-letter queue, named by the environment and `name`.

    `name` and `dead_letters_name` are their full names. `priority` says how soon somebody has to know that
    nobody reads it (`age_alarm`).
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        environment: Environment,
        name: str,
        visibility: Duration,
        retention: Duration = DEAD_LETTER_RETENTION,
        max_receives: int = 5,
        is_fifo: bool = False,
        priority: Priority = Priority.NORMAL,
    ) -> None:
        super().__init__(scope, id)
        self.name = queue_name(environment, name, is_fifo=is_fifo)
        self.dead_letters_name = resource_names.dead_letter_queue(self.name)
        self.is_urgent = priority is Priority.URGENT
        self.age_alarm = Duration.seconds(
            environment.alarms.urgent_age_s if self.is_urgent else environment.alarms.age_s
        )
        # SQS refuses an explicit `false`.
        queue = partial(encrypted_queue(self, environment), fifo=True if is_fifo else None)
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


def encrypted_queue(scope: Construct, environment: Environment) -> Callable[..., sqs.Queue]:
    """What makes queues in `scope`, by their id and properties: encrypted, and over TLS only."""
    key = find_key(scope, environment)
    if environment.is_emulated:
        accept(scope, "SQS4", PLAIN_HTTP)
    return partial(
        sqs.Queue,
        scope,
        encryption=sqs.QueueEncryption.KMS if key else sqs.QueueEncryption.SQS_MANAGED,
        encryption_master_key=key,
        data_key_reuse=DATA_KEY_REUSE if key else None,
        enforce_ssl=not environment.is_emulated,
        removal_policy=environment.removal_policy,
    )


def queue_name(environment: Environment, name: str, *, is_fifo: bool = False) -> str:
    """What the queue called `name` is called in `environment`."""
    return resource_names.queue_name(environment.name, name, is_fifo=is_fifo)


def find_queue(
    scope: Construct, id: str, *, environment: Environment, name: str, is_fifo: bool = False
) -> sqs.IQueue:
    """The queue called `name`, which another stack owns, found by its name.

    An export would do as well, until a participant leaves the contract: CloudFormation refuses to delete a
    queue whose export is still in use, and the stack that uses it is deployed later.
    """
    arn = Stack.of(scope).format_arn(service="sqs", resource=queue_name(environment, name, is_fifo=is_fifo))
    return sqs.Queue.from_queue_attributes(scope, id, queue_arn=arn, fifo=is_fifo)


def allow_send(*, environment: Environment, queues: Sequence[sqs.IQueue]) -> iam.PolicyStatement:
    """A statement for a role that may write to `queues`."""
    actions = ["sqs:SendMessage"]
    if environment.is_emulated:
        # AWS knows no such action and asks for the one above; the emulator asks for what was called.
        actions.append("sqs:SendMessageBatch")
    return allow(actions, [queue.queue_arn for queue in queues])
