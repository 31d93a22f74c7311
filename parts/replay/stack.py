"""The queue of orders, and the function that carries them out."""

from __future__ import annotations

from constructs import Construct

from eventplane.ledger import CONTRACTS, TAP
from eventplane.reasons import REPLAY
from parts.replay.order import MAX_ORDER_RECEIVES
from stacks.application import PlaneStacks
from stacks.constructs.archive import allow_folders
from stacks.constructs.permissions import allow
from stacks.constructs.python_function import PythonFunction
from stacks.constructs.queues import DurableQueue, find_queue


def add(plane: PlaneStacks) -> None:
    """Add the queue, and the function that routes again what devices sent: it reads the tap's files."""
    size, targets = plane.environment.replay, plane.routing.targets
    queue = DurableQueue(
        plane.messaging, "Replay", REPLAY, visibility=size.visibility, max_receives=MAX_ORDER_RECEIVES
    )
    plane.messaging.output_queue("Replay", queue)
    holder = Construct(plane.routing, "Replay")
    outbox = plane.contract.device.outbox
    PythonFunction(
        holder,
        "Replay",
        name="replay",
        module="parts.replay.handler",
        contract=plane.contract,
        size=size,
        sources=[find_queue(plane.routing, "ReplayQueue", REPLAY)],
        statements=[
            *targets.statements(holder),
            allow_folders(holder, targets.archive, ["s3:GetObject"], [TAP, CONTRACTS]),
            # Or S3 says of an object that is not there that it may not be read.
            allow(["s3:ListBucket"], [targets.archive.bucket_arn]),
        ],
        settings=targets.settings(outbox.address, outbox.priority),
        variables=targets.secrets(),
    )
