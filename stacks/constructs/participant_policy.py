"""What a cloud service's program may do: read its inbox, write its outbox, keep what is its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aws_cdk import aws_iam as iam
from constructs import Construct

from eventplane.contract import Channel, Participant, interest, subscription
from eventplane.resource_names import has_queue
from stacks.constructs.client_tables import FILTER, allow_interest, allow_own_items, allow_subscriptions
from stacks.constructs.contract_table import allow_read_contracts
from stacks.constructs.customer_key import allow_key
from stacks.constructs.queue_pair import find_channel_queue
from stacks.constructs.service_role import allow
from stacks.environment import Environment

_READ = ("sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility", "sqs:GetQueueAttributes")
_ITEMS = (
    "dynamodb:GetItem",
    "dynamodb:PutItem",
    "dynamodb:UpdateItem",
    "dynamodb:DeleteItem",
    "dynamodb:Query",
)


class ParticipantPolicy(Construct):
    """A policy to attach to the role or user that `participant` runs as; the plane itself uses it nowhere."""

    def __init__(
        self, scope: Construct, id: str, *, environment: Environment, participant: Participant
    ) -> None:
        super().__init__(scope, id)
        boxes = {
            box.box: find_channel_queue(
                self, box.box.capitalize(), environment=environment, channel=box
            ).queue_arn
            for box in (participant.inbox, participant.outbox)
            if has_queue(box)
        }
        name = participant.name
        replies = [] if participant.replies is None else [self._replies(environment, participant.replies)]
        read, write = [*_READ], ["sqs:SendMessage"]
        if environment.is_emulated:
            # AWS asks for the actions above; the emulator asks for what was called.
            read += ["sqs:DeleteMessageBatch", "sqs:ChangeMessageVisibilityBatch"]
        self.policy = iam.ManagedPolicy(
            self,
            "Policy",
            managed_policy_name=environment.resource_name(f"{name}-client"),
            description=f"What the program of {name} may do in the event plane.",
            statements=[
                allow(["sqs:GetQueueUrl"], [*boxes.values(), *replies]),
                # A webhook's inbox has its reader in the plane; one over another protocol has no queue.
                *(
                    [allow(read, [boxes["inbox"]])]
                    if "inbox" in boxes and not participant.inbox.webhook
                    else []
                ),
                allow(write, [boxes["outbox"]]),
                allow_own_items(
                    self, environment=environment, table=FILTER, actions=_ITEMS, partitions=[f"{name}/*"]
                ),
                *(
                    allow_own_items(
                        self, environment=environment, table=table, actions=_ITEMS, partitions=[name]
                    )
                    for table in (subscription.TABLE, interest.TABLE)
                ),
                *(self._asking(environment, read, replies) if replies else ()),
                *allow_key(environment),
            ],
        )

    def _replies(self, environment: Environment, channel: Channel) -> str:
        return find_channel_queue(self, "Replies", environment=environment, channel=channel).queue_arn

    def _asking(
        self, environment: Environment, read: Sequence[str], replies: Sequence[str]
    ) -> Iterator[iam.PolicyStatement]:
        """Who asks reads the replies, and who shall give them: by contract, subscriptions and interest."""
        yield allow(read, replies)
        yield allow_read_contracts(self, environment=environment)
        yield allow_subscriptions(self, environment=environment)
        yield allow_interest(self, environment=environment)
