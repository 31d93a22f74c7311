"""The replay's function: a router that reads the tap's files, as the orders in its queue say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from eventplane.contract import Channel, Contract
from eventplane.ledger import CONTRACTS, TAP
from stacks.constructs import router_function
from stacks.constructs.archive import allow_folders
from stacks.constructs.function_assets import function_code
from stacks.constructs.python_function import PythonFunction
from stacks.constructs.router_inputs import router_inputs
from stacks.constructs.service_role import allow
from stacks.environment import Environment

REPLAY_FOLDER: Final = "replay"


class ReplayFunction(Construct):
    """Carries out `orders`: from the tap in `archive` to `destinations`, inbox queues by their address.

    The inboxes `elsewhere` have no queue.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        environment: Environment,
        contract: Contract,
        orders: sqs.IQueue,
        destinations: Mapping[str, sqs.IQueue],
        elsewhere: Sequence[Channel],
        ledger: sqs.IQueue,
        archive: s3.IBucket,
        layer: lambda_.ILayerVersion,
    ) -> None:
        super().__init__(scope, id)
        inputs = router_inputs(
            self,
            environment=environment,
            source=contract.device.outbox,
            priority=contract.device.outbox.priority,
            destinations=destinations,
            elsewhere=elsewhere,
            ledger=ledger,
            archive=archive,
        )
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
                *inputs.statements,
                allow_folders(
                    self,
                    environment=environment,
                    archive=archive,
                    actions=["s3:GetObject"],
                    folders=[TAP, CONTRACTS],
                ),
                # Or S3 says of an object that is not there that it may not be read.
                allow(["s3:ListBucket"], [archive.bucket_arn]),
            ],
            variables=inputs.variables,
        ).function
