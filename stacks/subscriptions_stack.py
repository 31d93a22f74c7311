"""The Subscriptions API: participants change their own routes over HTTP, each by a policy of its own.

Beside it is what posts to the endpoints that they subscribe.
"""

from __future__ import annotations

import json
from typing import Final

from aws_cdk import CfnOutput
from aws_cdk import aws_iam as iam
from constructs import Construct

from eventplane.contract import Contract, Participant, ParticipantKind
from eventplane.contract.subscription import TABLE
from eventplane.own_services import OWN_SERVICES, SUBSCRIBERS
from eventplane.resource_names import has_queue
from stacks.constructs.archive import find_archive
from stacks.constructs.contract_inputs import contract_inputs
from stacks.constructs.durable_table import allow_table
from stacks.constructs.function_assets import DependenciesLayer, function_code
from stacks.constructs.iam_http_api import IamHttpApi
from stacks.constructs.python_function import PythonFunction
from stacks.constructs.queue_pair import find_channel_queue
from stacks.constructs.subscribers_function import SubscribersFunction, sink_variables
from stacks.constructs.webhook_function import WEBHOOK_FOLDER
from stacks.constructs.webhook_secret import allow_read_secret
from stacks.environment import Environment
from stacks.names import pascal
from stacks.plane_stack import PlaneStack

FOLDER: Final = "subscriptions_api"
NAME: Final = "subscriptions-api"

_COLLECTION: Final = "/participants/{participant}/subscriptions"
_ACTIONS: Final = tuple(f"dynamodb:{each}" for each in ("GetItem", "Query", "PutItem", "DeleteItem"))


class SubscriptionsStack(PlaneStack):
    """The API; the table is the client stack's. It holds no state."""

    def __init__(self, scope: Construct, *, environment: Environment, contract: Contract) -> None:
        super().__init__(scope, environment=environment, name="subscriptions")
        self._environment = environment
        layer = DependenciesLayer(self, "Dependencies", environment=environment).version
        services = [
            each
            for each in contract.of_kind(ParticipantKind.CLOUD_SERVICE)
            if not each.retired and each.name not in OWN_SERVICES and has_queue(each.inbox)
        ]
        inputs = contract_inputs(self, environment=environment)
        function = PythonFunction(
            self,
            "Function",
            environment=environment,
            name=NAME,
            folder=FOLDER,
            # Which contract is in force it finds out as the routers do.
            code=function_code(FOLDER, contract, also=[WEBHOOK_FOLDER, "router"]),
            layer=layer,
            size=environment.subscriptions_api,
            source=None,
            statements=[
                *inputs.statements,
                allow_table(self, environment=environment, name=TABLE, actions=_ACTIONS),
                allow_read_secret(self, environment=environment, participant=SUBSCRIBERS),
            ],
            variables={
                **inputs.variables,
                **sink_variables(environment, contract),
                "EVENTPLANE_INBOXES": json.dumps({each.name: self._inbox(each) for each in services}),
            },
        ).function
        self._api = IamHttpApi(
            self,
            "Api",
            environment=environment,
            name=NAME,
            description="Subscriptions of the event plane: participants' own routes.",
            function=function,
            paths=[_COLLECTION, f"{_COLLECTION}/{{id}}", f"{_COLLECTION}/{{id}}/signing-key"],
        )
        for each in services:
            self._policy(each)
        if SUBSCRIBERS in contract.participants:
            SubscribersFunction(
                self,
                "Subscribers",
                environment=environment,
                contract=contract,
                archive=find_archive(self, "Archive", environment=environment),
                layer=layer,
            )
        CfnOutput(self, "SubscriptionsApiUrl", value=self._api.url)
        CfnOutput(self, "SubscriptionsApiId", value=self._api.api.api_id)

    def _inbox(self, participant: Participant) -> str:
        name = f"{pascal(participant.name)}Inbox"
        return find_channel_queue(
            self, name, environment=self._environment, channel=participant.inbox
        ).queue_arn

    def _policy(self, participant: Participant) -> iam.ManagedPolicy:
        """To attach to the role or user that `participant` runs as."""
        own = _COLLECTION.format(participant=participant.name)
        return self._api.caller_policy(
            f"{pascal(participant.name)}Policy",
            environment=self._environment,
            name=f"{participant.name}-subscriptions",
            description=f"Lets {participant.name} change its own subscriptions.",
            paths=[own, f"{own}/*"],
        )
