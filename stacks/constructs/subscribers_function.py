"""The function behind the subscribers' inbox: one for all endpoints, with a delivery for each."""

from __future__ import annotations

from typing import Final

from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from constructs import Construct

from eventplane.contract import Contract
from eventplane.contract.subscription import TABLE
from eventplane.handover import HANDOVERS
from eventplane.own_services import SUBSCRIBERS
from stacks.constructs import webhook_secret
from stacks.constructs.archive import allow_folders
from stacks.constructs.client_tables import allow_subscriptions
from stacks.constructs.durable_queue import allow_send
from stacks.constructs.function_assets import function_code
from stacks.constructs.python_function import PythonFunction
from stacks.constructs.queue_pair import find_channel_dead_letters, find_channel_queue
from stacks.constructs.webhook_function import WEBHOOK_FOLDER
from stacks.environment import PROJECT, Environment

SUBSCRIBERS_FOLDER: Final = "subscribers"


def sink_variables(environment: Environment, contract: Contract) -> dict[str, str]:
    """What the functions that ask endpoints, and post to them, have to agree on."""
    return {
        **environment.sink_variables,
        "EVENTPLANE_SUBSCRIPTIONS_TABLE": environment.resource_name(TABLE),
        "EVENTPLANE_WEBHOOK_ORIGIN": f"{PROJECT}-{environment.name}",
        "EVENTPLANE_WEBHOOK_SECRET": webhook_secret.secret_name(environment, SUBSCRIBERS),
        **({} if _has_subscribers(contract) else {"EVENTPLANE_SINKS": "nowhere"}),
    }


def _has_subscribers(contract: Contract) -> bool:
    """Whether somebody stands for the endpoints that participants subscribe."""
    subscribers = contract.participants.get(SUBSCRIBERS)
    return subscribers is not None and not subscribers.retired


class SubscribersFunction(Construct):
    """Posts what is in the inbox of `subscribers`; dead letters go out through its outbox."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        environment: Environment,
        contract: Contract,
        archive: s3.IBucket,
        layer: lambda_.ILayerVersion,
    ) -> None:
        super().__init__(scope, id)
        subscribers = contract.participants[SUBSCRIBERS]
        inbox, outbox = (
            find_channel_queue(self, each.box.capitalize(), environment=environment, channel=each)
            for each in (subscribers.inbox, subscribers.outbox)
        )
        last_resort = find_channel_dead_letters(
            self, "LastResort", environment=environment, channel=subscribers.inbox
        )
        self.function = PythonFunction(
            self,
            "Subscribers",
            environment=environment,
            name=SUBSCRIBERS_FOLDER,
            folder=SUBSCRIBERS_FOLDER,
            code=function_code(SUBSCRIBERS_FOLDER, contract, also=[WEBHOOK_FOLDER]),
            layer=layer,
            size=environment.webhook,
            source=inbox,
            statements=[
                allow_send(environment=environment, queues=[outbox, last_resort]),
                allow_subscriptions(self, environment=environment),
                webhook_secret.allow_read_secret(self, environment=environment, participant=SUBSCRIBERS),
                allow_folders(
                    self,
                    environment=environment,
                    archive=archive,
                    actions=["s3:PutObject"],
                    folders=[HANDOVERS],
                ),
            ],
            variables={
                **sink_variables(environment, contract),
                "EVENTPLANE_OUTBOX_QUEUE": outbox.queue_url,
                "EVENTPLANE_DEAD_LETTER_QUEUE": last_resort.queue_url,
                "EVENTPLANE_CONCURRENCY": str(environment.webhook.max_concurrency),
                "EVENTPLANE_ARCHIVE_BUCKET": archive.bucket_name,
            },
        ).function
