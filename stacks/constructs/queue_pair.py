"""The two queues of a cloud service: it writes its outbox, and reads its inbox."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from eventplane.contract import Channel, Participant
from eventplane.own_services import DOWNLINK, SUBSCRIBERS
from eventplane.presence import MONITOR
from eventplane.resource_names import channel_queue as channel_queue_name
from eventplane.resource_names import dead_letter_queue, has_queue, is_fifo
from stacks.constructs.durable_queue import DurableQueue, find_queue
from stacks.environment import Environment
from stacks.plane_stack import charge_to


class QueuePair(Construct):
    """Inbox and outbox of `participant`, as the contract's channels say.

    The `inbox` is None where a protocol that a package adds carries it. An outbox has its queue all the same:
    it feeds the router.
    """

    def __init__(
        self, scope: Construct, id: str, *, environment: Environment, participant: Participant
    ) -> None:
        super().__init__(scope, id)
        charge_to(self, participant.name)

        def channel_queue(id: str, channel: Channel, visibility: Duration, max_receives: int) -> DurableQueue:
            return DurableQueue(
                self,
                id,
                environment=environment,
                name=channel_queue_name(channel),
                visibility=visibility,
                retention=Duration.seconds(channel.retention_s),
                max_receives=max_receives,
                is_fifo=is_fifo(channel),
                priority=channel.priority,
            )

        inbox, outbox = participant.inbox, participant.outbox
        self.inbox = (
            channel_queue("Inbox", inbox, _inbox_visibility(environment, participant), inbox.max_receives)
            if has_queue(inbox)
            else None
        )
        receives = outbox.receives_at(outbox.priority)
        self.outbox = channel_queue("Outbox", outbox, environment.router.visibility, receives)


def find_channel_queue(
    scope: Construct, id: str, *, environment: Environment, channel: Channel
) -> sqs.IQueue:
    """The queue that carries `channel`, which another stack owns."""
    name = channel_queue_name(channel)
    return find_queue(scope, id, environment=environment, name=name, is_fifo=is_fifo(channel))


def find_channel_dead_letters(
    scope: Construct, id: str, *, environment: Environment, channel: Channel
) -> sqs.IQueue:
    """The dead-letter queue of the queue that carries `channel`."""
    name = dead_letter_queue(channel_queue_name(channel))
    return find_queue(scope, id, environment=environment, name=name, is_fifo=is_fifo(channel))


def _inbox_visibility(environment: Environment, participant: Participant) -> Duration:
    """For inboxes that functions of this plane read, as those need it."""
    if participant.name == MONITOR:
        return environment.presence.recorder.visibility
    if participant.name == DOWNLINK:
        return environment.downlink.reader.visibility
    if participant.inbox.webhook or participant.name == SUBSCRIBERS:
        return environment.webhook.visibility
    return Duration.seconds(environment.inbox_visibility_s)
