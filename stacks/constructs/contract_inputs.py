"""What a function may do and is told that goes by the contract in force."""

from __future__ import annotations

from dataclasses import dataclass

from aws_cdk import aws_iam as iam
from constructs import Construct

from eventplane.contract import interest, subscription
from eventplane.function_settings import ContractSettings
from stacks.constructs.client_tables import allow_interest, allow_subscriptions
from stacks.constructs.contract_table import allow_read_contracts, table_name
from stacks.environment import Environment


@dataclass(frozen=True, slots=True)
class Inputs:
    """`statements` for the function's role and `variables` of its environment."""

    statements: list[iam.PolicyStatement]
    variables: dict[str, str]


def contract_settings(environment: Environment) -> ContractSettings:
    """Return where a function finds what is published, subscribed and announced."""
    return ContractSettings(
        contracts_table=table_name(environment),
        subscriptions_table=environment.resource_name(subscription.TABLE),
        interest_table=environment.resource_name(interest.TABLE),
        contract_refresh_s=environment.contract_refresh_s,
    )


def contract_inputs(scope: Construct, *, environment: Environment) -> Inputs:
    """Of a function in `scope` that follows what is published, subscribed and announced."""
    return Inputs(
        statements=[
            allow_read_contracts(scope, environment=environment),
            allow_subscriptions(scope, environment=environment),
            allow_interest(scope, environment=environment),
        ],
        variables=contract_settings(environment).variables(),
    )
