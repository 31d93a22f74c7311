"""What devices shall have and have, and the queue of what is due for them."""

from __future__ import annotations

from typing import Final

from aws_cdk import CfnOutput
from constructs import Construct

from eventplane.downlink.resets import WORK_QUEUE
from stacks.constructs.desired_table import DesiredTable
from stacks.constructs.durable_queue import DurableQueue
from stacks.environment import Environment
from stacks.plane_stack import PlaneStack

WORK: Final = WORK_QUEUE
"""The queue of checks after a transmission, of devices that have just subscribed, and of resets."""


class DownlinkStack(PlaneStack):
    """The downlink's state; its functions are in the routing stack, the inbox in the messaging stack."""

    def __init__(self, scope: Construct, *, environment: Environment) -> None:
        super().__init__(scope, environment=environment, name="downlink", holds_state=True)
        table = DesiredTable(self, "Desired", environment=environment).table
        queue = DurableQueue(
            self,
            "Work",
            environment=environment,
            name=WORK,
            visibility=environment.downlink.reader.visibility,
        )
        CfnOutput(self, "DesiredTable", value=table.table_name)
        CfnOutput(self, "DownlinkWorkUrl", value=queue.queue.queue_url)
        CfnOutput(self, "DownlinkWorkDlqUrl", value=queue.dead_letters.queue_url)
