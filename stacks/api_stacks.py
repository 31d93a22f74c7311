"""The HTTP APIs: what the plane consists of, and what participants subscribe. They hold no state."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from aws_cdk import CfnOutput
from constructs import Construct

from eventplane.contract import Contract, ParticipantKind
from eventplane.contract.subscription_table import SUBSCRIPTIONS_TABLE
from eventplane.function_settings import SubscriptionsApiSettings
from eventplane.names import OWN_SERVICES, SUBSCRIBERS
from eventplane.resource_names import has_queue
from stacks.constructs.archive import find_archive
from stacks.constructs.http_sink import (
    allow_read_secret,
    subscribers,
    subscribers_origin,
    subscribers_reach,
    webhook_secret_name,
)
from stacks.constructs.iam_http_api import IamHttpApi
from stacks.constructs.python_function import PythonFunction
from stacks.constructs.queues import find_channel_queue
from stacks.constructs.routers import allow_contract, contract_settings
from stacks.constructs.tables import allow_table
from stacks.environment import Environment
from stacks.names import pascal
from stacks.plane_stack import PlaneStack
from stacks.settings import FunctionSize

API: Final = "api"
"""The folder of the code of the HTTP APIs."""

_COLLECTION: Final = "/participants/{participant}/subscriptions"

# Nobody waits in a queue for it; the timeout is below the 30 s that API Gateway waits.
_DISCOVERY_SIZE: Final = FunctionSize(memory_mib=512, timeout_s=20)


class DiscoveryStack(PlaneStack):
    """The Discovery API over the contract in force, for those who have a policy that lets them read it."""

    def __init__(self, scope: Construct, environment: Environment, contract: Contract) -> None:
        super().__init__(scope, environment=environment, name="discovery")
        name = "discovery-api"
        function = PythonFunction(
            self,
            "Function",
            name=name,
            folder=API,
            entry="discovery",
            contract=contract,
            size=_DISCOVERY_SIZE,
            statements=allow_contract(self),
            settings=contract_settings(environment),
        ).function
        api = IamHttpApi(
            self,
            "Api",
            name=name,
            description="What participants, event types, schemas, channels and routes the event plane has.",
            function=function,
            paths=["/", "/{proxy+}"],
        )
        api.caller_policy(
            "Reader",
            name="discovery-reader",
            description="Lets read the Discovery API of the event plane.",
            paths=["/*"],
        )
        CfnOutput(self, "DiscoveryApiUrl", value=api.url)


class SubscriptionsStack(PlaneStack):
    """The Subscriptions API: participants change their own routes, each by a policy of its own.

    Beside it is what posts to the endpoints that they subscribe. The table is the client stack's.
    """

    def __init__(self, scope: Construct, environment: Environment, contract: Contract) -> None:
        super().__init__(scope, environment=environment, name="subscriptions")
        services = {
            each.name: find_channel_queue(self, f"{pascal(each.name)}Inbox", each.inbox).queue_arn
            for each in contract.of_kind(ParticipantKind.CLOUD_SERVICE)
            if not each.retired and each.name not in OWN_SERVICES and has_queue(each.inbox)
        }
        name = "subscriptions-api"
        secret = webhook_secret_name(environment, SUBSCRIBERS)
        function = PythonFunction(
            self,
            "Function",
            name=name,
            folder=API,
            entry="subscriptions",
            contract=contract,
            size=environment.subscriptions_api,
            statements=[
                *allow_contract(self),
                allow_table(self, SUBSCRIPTIONS_TABLE, "GetItem", "Query", "PutItem", "DeleteItem"),
                allow_read_secret(self, secret),
            ],
            settings=SubscriptionsApiSettings(
                **asdict(contract_settings(environment)),
                inboxes=services,
                webhook_origin=subscribers_origin(environment),
                webhook_secret=secret,
                reach=subscribers_reach(environment, contract),
            ),
        ).function
        api = IamHttpApi(
            self,
            "Api",
            name=name,
            description="Subscriptions of the event plane: participants' own routes.",
            function=function,
            paths=[_COLLECTION, f"{_COLLECTION}/{{id}}", f"{_COLLECTION}/{{id}}/signing-key"],
        )
        for service in services:
            own = _COLLECTION.format(participant=service)
            # To attach to the role or user that the participant runs as.
            api.caller_policy(
                f"{pascal(service)}Policy",
                name=f"{service}-subscriptions",
                description=f"Lets {service} change its own subscriptions.",
                paths=[own, f"{own}/*"],
            )
        if SUBSCRIBERS in contract.participants:
            subscribers(self, find_archive(self), contract)
        CfnOutput(self, "SubscriptionsApiUrl", value=api.url)
        CfnOutput(self, "SubscriptionsApiId", value=api.api.api_id)
