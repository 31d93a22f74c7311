"""The Subscriptions API: participants change their own routes over HTTP, each by a policy of its own."""

from __future__ import annotations

import json
from typing import Final

from aws_cdk import CfnOutput
from aws_cdk import aws_iam as iam
from constructs import Construct

from eventplane.contract import Contract, Participant, ParticipantKind
from eventplane.contract.subscription import TABLE
from stacks.config import Environment
from stacks.constructs.durable_table import allow_table
from stacks.constructs.function_assets import DependenciesLayer, function_code
from stacks.constructs.iam_http_api import IamHttpApi
from stacks.constructs.python_function import PythonFunction
from stacks.constructs.queue_pair import find_channel_queue
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
        services = [each for each in contract.of_kind(ParticipantKind.CLOUD_SERVICE) if not each.retired]
        function = PythonFunction(
            self,
            "Function",
            environment=environment,
            name=NAME,
            folder=FOLDER,
            code=function_code(FOLDER),
            layer=DependenciesLayer(self, "Dependencies", environment=environment).version,
            size=environment.subscriptions_api,
            source=None,
            statements=[allow_table(self, environment=environment, name=TABLE, actions=_ACTIONS)],
            variables={
                "EVENTPLANE_SUBSCRIPTIONS_TABLE": environment.resource_name(TABLE),
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
            paths=[_COLLECTION, f"{_COLLECTION}/{{id}}"],
        )
        for each in services:
            self._policy(each)
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
