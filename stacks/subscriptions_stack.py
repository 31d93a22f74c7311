"""The Subscriptions API: participants change their own routes over HTTP, each by a policy of its own.

Beside it is what posts to the endpoints that they subscribe.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from aws_cdk import CfnOutput
from aws_cdk import aws_iam as iam
from constructs import Construct

from eventplane.contract import Contract, Participant, ParticipantKind
from eventplane.contract.subscription import TABLE
from eventplane.function_settings import SubscriptionsApiSettings
from eventplane.own_services import OWN_SERVICES, SUBSCRIBERS
from eventplane.resource_names import has_queue
from stacks.constructs.archive import find_archive
from stacks.constructs.contract_inputs import contract_inputs, contract_settings
from stacks.constructs.durable_table import allow_table
from stacks.constructs.function_assets import DependenciesLayer, function_code
from stacks.constructs.iam_http_api import IamHttpApi
from stacks.constructs.python_function import PythonFunction
from stacks.constructs.queue_pair import find_channel_queue
from stacks.constructs.subscribers_function import SubscribersFunction, origin, subscribers_reach
from stacks.constructs.webhook_function import HTTP_SINK
from stacks.constructs.webhook_secret import allow_read_secret, secret_name
from stacks.environment import Environment
from stacks.names import pascal
from stacks.plane_stack import PlaneStack

API: Final = "api"
"""The folder of the code of the HTTP APIs."""

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
            folder=API,
            entry="subscriptions",
            # Which contract is in force it finds out as the routers do.
            code=function_code(API, contract, also=[HTTP_SINK, "router"]),
            layer=layer,
            size=environment.subscriptions_api,
            source=None,
            statements=[
                *inputs.statements,
                allow_table(self, environment=environment, name=TABLE, actions=_ACTIONS),
                allow_read_secret(self, environment=environment, participant=SUBSCRIBERS),
            ],
            variables=SubscriptionsApiSettings(
                **asdict(contract_settings(environment)),
                inboxes={each.name: self._inbox(each) for each in services},
                webhook_origin=origin(environment),
                webhook_secret=secret_name(environment, SUBSCRIBERS),
                reach=subscribers_reach(environment, contract),
            ).variables(),
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
