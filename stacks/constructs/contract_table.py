"""The table of published contracts: what is in force between two deployments."""

from __future__ import annotations

from typing import Final

from aws_cdk import aws_iam as iam
from constructs import Construct

from eventplane.contract.publication import KEY
from stacks.constructs.durable_table import allow_table, durable_table, text
from stacks.environment import Environment

_NAME: Final = "contracts"


class ContractTable(Construct):
    """A few items of some kilobytes, read once in a while by each router and written by people."""

    def __init__(self, scope: Construct, id: str, *, environment: Environment) -> None:
        super().__init__(scope, id)
        self.table = durable_table(self, "Table", environment=environment, name=_NAME, key=text(KEY))


def table_name(environment: Environment) -> str:
    """What the table is called, by which other stacks find it."""
    return environment.resource_name(_NAME)


def allow_read_contracts(scope: Construct, *, environment: Environment) -> iam.PolicyStatement:
    """A statement for a role in `scope` that may read the table."""
    return allow_table(scope, environment=environment, name=_NAME, actions=["dynamodb:GetItem"])
