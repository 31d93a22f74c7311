"""The replay's function: a router that reads the tap's files, as the orders in its queue say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from eventplane.contract import Contract
from eventplane.contract.subscription import TABLE
from eventplane.ledger import CONTRACTS, LEDGER, TAP
from stacks.config import Environment
from stacks.constructs import router_function
from stacks.constructs.archive import allow_folders
from stacks.constructs.client_tables import allow_subscriptions
from stacks.constructs.contract_table import allow_read, table_name
from stacks.constructs.durable_queue import allow_send
from stacks.constructs.function_assets import function_code
from stacks.constructs.python_function import PythonFunction
from stacks.constructs.service_role import allow

REPLAY_FOLDER: Final = "replay"


class ReplayFunction(Construct):
    """Carries out `orders`: from the tap in `archive` to `destinations`, inbox queues by their address."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        environment: Environment,
        contract: Contract,
        orders: sqs.IQueue,
        destinations: Mapping[str, sqs.IQueue],
        archive: s3.IBucket,
        layer: lambda_.ILayerVersion,
    ) -> None:
        super().__init__(scope, id)
        queues = {address: queue.queue_url for address, queue in destinations.items()}
        grants = {"s3:GetObject": [TAP, CONTRACTS], "s3:PutObject": [LEDGER, CONTRACTS]}
        self.function = PythonFunction(
            self,
            "Replay",
            environment=environment,
            name=REPLAY_FOLDER,
            folder=REPLAY_FOLDER,
            code=function_code(REPLAY_FOLDER, contract, also=[router_function.FOLDER]),
            layer=layer,
            size=environment.replay,
            source=orders,
            statements=[
                allow_send(environment=environment, queues=list(destinations.values())),
                allow_read(self, environment=environment),
                allow_subscriptions(self, environment=environment),
                *(
                    allow_folders(
                        self, environment=environment, archive=archive, actions=[action], folders=folders
                    )
                    for action, folders in grants.items()
                ),
                # Or S3 says of an object that is not there that it may not be read.
                allow(["s3:ListBucket"], [archive.bucket_arn]),
            ],
            variables={
                "EVENTPLANE_SOURCE": contract.device.outbox.address,
                "EVENTPLANE_QUEUES": json.dumps(queues),
                "EVENTPLANE_ARCHIVE_BUCKET": archive.bucket_name,
                "EVENTPLANE_CONTRACTS_TABLE": table_name(environment),
                "EVENTPLANE_SUBSCRIPTIONS_TABLE": environment.resource_name(TABLE),
                "EVENTPLANE_CONTRACT_REFRESH_S": str(environment.contract_refresh_s),
            },
        ).function
