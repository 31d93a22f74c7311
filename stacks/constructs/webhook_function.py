"""One webhook: the same code for every endpoint, each in a function of its own (a bulkhead)."""

from __future__ import annotations

from typing import Final

from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from eventplane.contract import Channel
from eventplane.function_settings import WebhookSettings
from eventplane.handover import HANDOVERS
from stacks.constructs.archive import allow_folders
from stacks.constructs.durable_queue import allow_send
from stacks.constructs.python_function import PythonFunction
from stacks.constructs.queue_pair import find_channel_dead_letters
from stacks.constructs.webhook_secret import allow_read_secret, secret_name
from stacks.environment import Environment

HTTP_SINK: Final = "http_sink"
"""The folder of the code that posts events."""


class WebhookFunction(Construct):
    """Posts what is in `inbox` to the endpoint that `environment` names.

    Dead letters go out through `outbox_queue`, as if the service had sent them.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        environment: Environment,
        inbox: Channel,
        inbox_queue: sqs.IQueue,
        outbox_queue: sqs.IQueue,
        archive: s3.IBucket,
        code: lambda_.Code,
        layer: lambda_.ILayerVersion,
    ) -> None:
        super().__init__(scope, id)
        last_resort = find_channel_dead_letters(self, "LastResort", environment=environment, channel=inbox)
        participant = inbox.participant
        self.function = PythonFunction(
            self,
            "Webhook",
            environment=environment,
            name=f"webhook-{participant}",
            folder=HTTP_SINK,
            entry="webhook",
            code=code,
            layer=layer,
            size=environment.webhook,
            source=inbox_queue,
            statements=[
                allow_send(environment=environment, queues=[outbox_queue, last_resort]),
                allow_read_secret(self, environment=environment, participant=participant),
                allow_folders(
                    self,
                    environment=environment,
                    archive=archive,
                    actions=["s3:PutObject"],
                    folders=[HANDOVERS],
                ),
            ],
            variables=WebhookSettings(
                reach=environment.sink_reach,
                source=inbox.address,
                webhook_url=environment.webhook_url(participant),
                webhook_secret=secret_name(environment, participant),
                webhook_origin=environment.resource_name(participant),
                outbox_queue=outbox_queue.queue_url,
                dead_letter_queue=last_resort.queue_url,
                concurrency=environment.webhook.max_concurrency,
                archive_bucket=archive.bucket_name,
            ).variables(),
        ).function
