"""The entry of the function that tells devices what the cloud wants of them."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from eventplane.contract_table import ContractTable
from lambdas.common.aws import client
from lambdas.common.clock import system_clock
from lambdas.common.contracts import load_contract
from lambdas.common.log import logger
from lambdas.common.queue import Context
from lambdas.common.subscription_table import SubscriptionTable
from lambdas.uplink_interest.service import UplinkInterest
from lambdas.uplink_interest.settings import read_settings
from lambdas.uplink_interest.table import ToldTable


@cache
def service() -> UplinkInterest:
    """The service as the environment describes it. Raises `SettingsError`."""
    settings = read_settings(os.environ)
    sqs, dynamodb = client("sqs"), client("dynamodb")

    def send(text: str) -> None:
        sqs.send_message(QueueUrl=settings.outbox, MessageBody=text)

    return UplinkInterest(
        bundled=load_contract(settings.root),
        contracts=ContractTable(dynamodb, settings.contracts),
        subscriptions=SubscriptionTable(dynamodb, settings.subscriptions),
        told=ToldTable(dynamodb, settings.desired),
        send=send,
        clock=system_clock,
    )


@logger.inject_lambda_context
def handle(event: dict[str, Any], context: Context) -> dict[str, bool]:  # noqa: ARG001 - Lambda passes both
    """Called by the schedule."""
    return {"told": service().tell()}
