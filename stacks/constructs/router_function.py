"""One router: the same code for every source queue, each in a function of its own (a bulkhead)."""

from __future__ import annotations

import json
from collections.abc import Mapping

from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from eventplane.contract import Channel
from eventplane.contract.subscription import TABLE
from eventplane.ledger import CONTRACTS, LEDGER
from stacks.config import Environment, FunctionSize
from stacks.constructs.archive import allow_folders
from stacks.constructs.client_tables import allow_subscriptions
from stacks.constructs.contract_table import allow_read, table_name
from stacks.constructs.durable_queue import allow_send
from stacks.constructs.python_function import PythonFunction

FOLDER = "router"


class RouterFunction(Construct):
    """Routes what comes over the channel `source` to `destinations`, inbox queues by their address.

    A channel that has several queues has a router for each; `name` tells them apart.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        environment: Environment,
        name: str,
        size: FunctionSize,
        source: Channel,
        source_queue: sqs.IQueue,
        destinations: Mapping[str, sqs.IQueue],
        archive: s3.IBucket,
        code: lambda_.Code,
        layer: lambda_.ILayerVersion,
    ) -> None:
        super().__init__(scope, id)
        queues = {address: queue.queue_url for address, queue in destinations.items()}
        self.function = PythonFunction(
            self,
            "Router",
            environment=environment,
            name=f"{FOLDER}-{name}",
            folder=FOLDER,
            draws_spans=True,
            code=code,
            layer=layer,
            size=size,
            source=source_queue,
            statements=[
                allow_send(environment=environment, queues=list(destinations.values())),
                allow_read(self, environment=environment),
                allow_subscriptions(self, environment=environment),
                allow_folders(
                    self,
                    environment=environment,
                    archive=archive,
                    actions=["s3:PutObject"],
                    folders=[LEDGER, CONTRACTS],
                ),
            ],
            variables={
                "EVENTPLANE_SOURCE": source.address,
                "EVENTPLANE_QUEUES": json.dumps(queues),
                "EVENTPLANE_ARCHIVE_BUCKET": archive.bucket_name,
                "EVENTPLANE_CONTRACTS_TABLE": table_name(environment),
                "EVENTPLANE_SUBSCRIPTIONS_TABLE": environment.resource_name(TABLE),
                "EVENTPLANE_CONTRACT_REFRESH_S": str(environment.contract_refresh_s),
            },
        ).function
