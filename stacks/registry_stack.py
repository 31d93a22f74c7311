"""What the fleet must not forget: which devices were made, and what became of each."""

from __future__ import annotations

from aws_cdk import CfnOutput
from constructs import Construct

from stacks.constructs.certificate_keeper import CONNECTIONS, SIZE
from stacks.constructs.durable_queue import DurableQueue
from stacks.constructs.fleet_registry import FleetRegistry
from stacks.environment import Environment
from stacks.plane_stack import PlaneStack


class RegistryStack(PlaneStack):
    """The fleet's registry, and the queue of connections that change it."""

    def __init__(self, scope: Construct, *, environment: Environment) -> None:
        super().__init__(scope, environment=environment, name="registry", holds_state=True)
        table = FleetRegistry(self, "Fleet", environment=environment).table
        DurableQueue(
            self,
            "Connections",
            environment=environment,
            name=CONNECTIONS,
            visibility=SIZE.visibility,
        )
        CfnOutput(self, "FleetTable", value=table.table_name)
