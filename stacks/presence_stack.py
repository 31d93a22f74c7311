"""What is known of the devices, and the queue that tells of their connections."""

from __future__ import annotations

from typing import Final

from aws_cdk import CfnOutput
from constructs import Construct

from stacks.constructs.durable_queue import DurableQueue
from stacks.constructs.presence_table import PresenceTable
from stacks.environment import Environment
from stacks.plane_stack import PlaneStack

LIFECYCLE: Final = "presence"
"""The queue from IoT Core's lifecycle messages to the presence monitor."""


class PresenceStack(PlaneStack):
    """The presence monitor's state; its functions are in the routing stack."""

    def __init__(self, scope: Construct, *, environment: Environment) -> None:
        super().__init__(scope, environment=environment, name="presence", holds_state=True)
        table = PresenceTable(self, "Devices", environment=environment).table
        queue = DurableQueue(
            self,
            "Lifecycle",
            environment=environment,
            name=LIFECYCLE,
            visibility=environment.presence.recorder.visibility,
        )
        CfnOutput(self, "PresenceTable", value=table.table_name)
        CfnOutput(self, "PresenceUrl", value=queue.queue.queue_url)
        CfnOutput(self, "PresenceDlqUrl", value=queue.dead_letters.queue_url)
