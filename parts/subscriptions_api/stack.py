"""The stack of the Subscriptions API. It holds no state."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from aws_cdk import CfnOutput

from eventplane.contract import ParticipantKind
from eventplane.contract.subscription_table import SUBSCRIPTIONS_TABLE
from eventplane.names import OWN_SERVICES, SUBSCRIBERS
from eventplane.resource_names import has_queue
from parts.subscriptions_api.settings import SubscriptionsApiSettings
from parts.webhooks.stack import (
    subscribers,
    subscribers_origin,
    subscribers_reach,
    webhook_secret_name,
)
from stacks.application import PlaneStacks
from stacks.constructs.archive import find_archive
from stacks.constructs.iam_http_api import IamHttpApi
from stacks.constructs.permissions import allow_read_secret
from stacks.constructs.python_function import PythonFunction
from stacks.constructs.queues import find_channel_queue
from stacks.constructs.routers import allow_contract, contract_settings
from stacks.constructs.tables import allow_table
from stacks.names import API, pascal

_COLLECTION: Final = "/participants/{participant}/subscriptions"


def add(plane: PlaneStacks) -> None:
    """Add the stack of the API, by which participants change their own routes, each by a policy of its own.

    Beside it is what posts to the endpoints that they subscribe. The table is the client stack's.
    """
    environment, contract, stack = plane.environment, plane.contract, plane.add("subscriptions")
    services = {
        each.name: find_channel_queue(stack, f"{pascal(each.name)}Inbox", each.inbox).queue_arn
        for each in contract.of_kind(ParticipantKind.CLOUD_SERVICE)
        if not each.retired and each.name not in OWN_SERVICES and has_queue(each.inbox)
    }
    name = "subscriptions-api"
    secret = webhook_secret_name(environment, SUBSCRIBERS)
    function = PythonFunction(
        stack,
        "Function",
        name=name,
        module="parts.subscriptions_api.handler",
        metrics_service=API,
        contract=contract,
        size=environment.subscriptions_api,
        statements=[
            *allow_contract(stack),
            allow_table(stack, SUBSCRIPTIONS_TABLE, "GetItem", "Query", "PutItem", "DeleteItem"),
            allow_read_secret(stack, secret),
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
        stack,
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
        subscribers(stack, find_archive(stack), contract)
    CfnOutput(stack, "SubscriptionsApiUrl", value=api.url)
    CfnOutput(stack, "SubscriptionsApiId", value=api.api.api_id)
