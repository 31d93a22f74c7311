"""What tells devices what the cloud wants of them: a function that looks once a minute."""

from __future__ import annotations

from typing import Final

from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from eventplane.contract import Contract, subscription
from eventplane.downlink.table import TABLE
from eventplane.function_settings import UplinkInterestSettings
from stacks.constructs import contract_table
from stacks.constructs.client_tables import allow_subscriptions
from stacks.constructs.desired_table import allow_desired
from stacks.constructs.durable_queue import allow_send
from stacks.constructs.every_minute import EveryMinute
from stacks.constructs.function_assets import function_code
from stacks.constructs.python_function import PythonFunction
from stacks.environment import Environment

FOLDER: Final = "downlink"
NAME: Final = "uplink-interest"


class UplinkInterest(Construct):
    """Sends through `outbox`, which a participant has that may send what goes down to devices."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        environment: Environment,
        contract: Contract,
        outbox: sqs.IQueue,
        layer: lambda_.ILayerVersion,
    ) -> None:
        super().__init__(scope, id)
        function = PythonFunction(
            self,
            "Function",
            environment=environment,
            name=NAME,
            folder=FOLDER,
            entry="interest",
            code=function_code(FOLDER, contract),
            layer=layer,
            size=environment.downlink.reconciler,
            source=None,
            statements=[
                contract_table.allow_read_contracts(self, environment=environment),
                allow_subscriptions(self, environment=environment),
                allow_desired(
                    self, environment=environment, actions=["dynamodb:GetItem", "dynamodb:PutItem"]
                ),
                allow_send(environment=environment, queues=[outbox]),
            ],
            variables=UplinkInterestSettings(
                contracts_table=contract_table.table_name(environment),
                subscriptions_table=environment.resource_name(subscription.TABLE),
                desired_table=environment.resource_name(TABLE),
                outbox_queue=outbox.queue_url,
            ).variables(),
        ).function
        EveryMinute(
            self,
            "Look",
            environment=environment,
            name=NAME,
            function=function,
            inputs=[{}],
            is_enabled=environment.downlink.is_scheduled,
        )
