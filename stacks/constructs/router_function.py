"""One router: the same code for every source queue, each in a function of its own (a bulkhead)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from eventplane.contract import Channel, Priority
from stacks.constructs.python_function import PythonFunction
from stacks.constructs.router_inputs import router_inputs
from stacks.environment import Environment
from stacks.settings import FunctionSize

FOLDER = "router"

URGENT = f"{FOLDER}-urgent"
"""The metrics of the routers behind urgent channels, apart from those of the others."""


class RouterFunction(Construct):
    """Routes what comes over the channel `source`, at `priority`, to inbox queues by their address.

    The inboxes `elsewhere` have no queue: a protocol that a package adds carries them.
    A channel that has several queues has a router for each; `name` tells them apart. One that `is_urgent` has
    its metrics apart.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        environment: Environment,
        name: str,
        size: FunctionSize,
        source: Channel,
        priority: Priority,
        source_queue: sqs.IQueue,
        destinations: Mapping[str, sqs.IQueue],
        elsewhere: Sequence[Channel],
        ledger: sqs.IQueue,
        archive: s3.IBucket,
        code: lambda_.Code,
        layer: lambda_.ILayerVersion,
        deploys_last: bool = False,
        is_urgent: bool,
    ) -> None:
        super().__init__(scope, id)
        inputs = router_inputs(
            self,
            environment=environment,
            source=source,
            priority=priority,
            destinations=destinations,
            elsewhere=elsewhere,
            ledger=ledger,
            archive=archive,
        )
        self.function = PythonFunction(
            self,
            "Router",
            environment=environment,
            name=f"{FOLDER}-{name}",
            folder=FOLDER,
            draws_spans=True,
            metrics_service=URGENT if is_urgent else None,
            code=code,
            layer=layer,
            size=size,
            source=source_queue,
            statements=inputs.statements,
            variables=inputs.variables,
            deploys_last=deploys_last,
        ).function
