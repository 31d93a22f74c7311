"""What every function that routes needs, from the settings they share."""

from __future__ import annotations

from typing import Any

from eventplane.contract import Contract
from lambdas.common.clock import system_clock
from lambdas.common.contract_table import ContractTable
from lambdas.common.contracts import load_contract
from lambdas.common.interest_table import InterestTable
from lambdas.common.subscription_table import SubscriptionTable
from lambdas.router.engine import Engine, build_engine
from lambdas.router.in_force import InForce
from lambdas.router.settings import RouterSettings


def contract_in_force(settings: RouterSettings, dynamodb: Any) -> InForce:
    """Follows the tables through a boto3 DynamoDB client.

    Raises what `build_engine` raises of the contract that came with the code.
    """

    def build(contract: Contract) -> Engine:
        return build_engine(contract, settings.source, settings.queues)

    return InForce(
        bundled=load_contract(settings.root),
        build=build,
        table=ContractTable(dynamodb, settings.contracts_table),
        subscriptions=SubscriptionTable(dynamodb, settings.subscriptions_table),
        interest=InterestTable(dynamodb, settings.interest_table),
        refresh_ms=1_000 * settings.refresh_s,
        clock=system_clock,
    )
