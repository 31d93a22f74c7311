"""What is known of the devices, the queue of their connections, and the queue of their timers."""

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

TIMERS: Final = "presence-timers"
"""The queue of timers: a delayed message for each moment at which a device has to be judged."""


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
        timers = DurableQueue(
            self,
            "Timers",
            environment=environment,
            name=TIMERS,
            visibility=environment.presence.timers.visibility,
        )
        CfnOutput(self, "PresenceTable", value=table.table_name)
        CfnOutput(self, "PresenceUrl", value=queue.queue.queue_url)
        CfnOutput(self, "PresenceDlqUrl", value=queue.dead_letters.queue_url)
        CfnOutput(self, "PresenceTimersUrl", value=timers.queue.queue_url)
        CfnOutput(self, "PresenceTimersDlqUrl", value=timers.dead_letters.queue_url)
