"""Which contract is in force: it outlives the routers, and changes without them."""

from __future__ import annotations

from aws_cdk import CfnOutput
from constructs import Construct

from stacks.constructs.contract_table import ContractTable
from stacks.environment import Environment
from stacks.plane_stack import PlaneStack


class ContractStack(PlaneStack):
    """The table of published contracts."""

    def __init__(self, scope: Construct, *, environment: Environment) -> None:
        super().__init__(scope, environment=environment, name="contract", holds_state=True)
        table = ContractTable(self, "Contracts", environment=environment).table
        CfnOutput(self, "ContractsTable", value=table.table_name)
