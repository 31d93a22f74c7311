"""A queue that loses nothing: encrypted, over TLS only, with a dead-letter queue of its own type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aws_cdk import Duration, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from stacks.config import Environment
from stacks.constructs.service_role import allow
from stacks.findings import PLAIN_HTTP, accept

DEAD_LETTER_RETENTION: Final = Duration.days(14)
"""The longest that SQS allows: whoever looks after the plane may be on holiday."""


class DurableQueue(Construct):
    """One queue and its dead-letter queue, named by the environment and `name`."""

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
    ) -> None:
        super().__init__(scope, id)
        fifo = True if is_fifo else None  # SQS refuses an explicit `false`
        self.dead_letters = sqs.Queue(
            self,
            "DeadLetters",
            queue_name=queue_name(environment, f"{name}-dlq", is_fifo=is_fifo),
            fifo=fifo,
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=not environment.is_emulated,
            removal_policy=environment.removal_policy,
            retention_period=DEAD_LETTER_RETENTION,
        )
        self.queue = sqs.Queue(
            self,
            "Queue",
            queue_name=queue_name(environment, name, is_fifo=is_fifo),
            fifo=fifo,
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=not environment.is_emulated,
            removal_policy=environment.removal_policy,
            retention_period=retention,
            visibility_timeout=visibility,
            dead_letter_queue=sqs.DeadLetterQueue(max_receive_count=max_receives, queue=self.dead_letters),
        )
        if environment.is_emulated:
            accept(self, "SQS4", PLAIN_HTTP)


def queue_name(environment: Environment, name: str, *, is_fifo: bool = False) -> str:
    """What the queue called `name` is called in `environment`."""
    return environment.resource_name(name) + (".fifo" if is_fifo else "")


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
