"""The function behind the subscribers' inbox: one for all endpoints, with a delivery for each."""

from __future__ import annotations

from typing import Final

from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from constructs import Construct

from eventplane.contract import Contract
from eventplane.contract.subscription import TABLE
from eventplane.function_settings import SubscribersSettings
from eventplane.handover import HANDOVERS
from eventplane.own_services import SUBSCRIBERS
from eventplane.sink_reach import Scope, SinkReach
from stacks.constructs import webhook_secret
from stacks.constructs.archive import allow_folders
from stacks.constructs.client_tables import allow_subscriptions
from stacks.constructs.durable_queue import allow_send
from stacks.constructs.function_assets import function_code
from stacks.constructs.python_function import PythonFunction
from stacks.constructs.queue_pair import find_channel_dead_letters, find_channel_queue
from stacks.constructs.webhook_function import HTTP_SINK
from stacks.environment import PROJECT, Environment

SUBSCRIBERS_NAME: Final = "subscribers"


def origin(environment: Environment) -> str:
    """Return the name under which subscribed endpoints know the plane."""
    return f"{PROJECT}-{environment.name}"


def subscribers_reach(environment: Environment, contract: Contract) -> SinkReach:
    """Return where subscribed endpoints may be: nowhere without the participant that posts to them."""
    subscribers = contract.participants.get(SUBSCRIBERS)
    if subscribers is None or subscribers.retired:
        return SinkReach(Scope.NOWHERE)
    return environment.sink_reach


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
            name=SUBSCRIBERS_NAME,
            folder=HTTP_SINK,
            entry="subscribers",
            code=function_code(HTTP_SINK, contract),
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
            variables=SubscribersSettings(
                reach=subscribers_reach(environment, contract),
                subscriptions_table=environment.resource_name(TABLE),
                webhook_origin=origin(environment),
                webhook_secret=webhook_secret.secret_name(environment, SUBSCRIBERS),
                outbox_queue=outbox.queue_url,
                dead_letter_queue=last_resort.queue_url,
                concurrency=environment.webhook.max_concurrency,
                archive_bucket=archive.bucket_name,
            ).variables(),
        ).function
