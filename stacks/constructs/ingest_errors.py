"""What the IoT rules could not hand over: a function brings it to the queues that did not get it."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from eventplane.contract import Contract
from eventplane.function_settings import IngestErrorsSettings
from stacks.constructs.durable_queue import allow_send
from stacks.constructs.function_assets import function_code
from stacks.constructs.python_function import PythonFunction
from stacks.environment import Environment

FOLDER = "archive"


class IngestErrors(Construct):
    """Sends what comes over `errors` to those of `lanes` and `tap` that a rule could not write to.

    `lanes` are the routers' queues, the one for all that is not urgent first: dead letters go there.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        environment: Environment,
        contract: Contract,
        errors: sqs.IQueue,
        lanes: Sequence[sqs.IQueue],
        tap: sqs.IQueue,
        layer: lambda_.ILayerVersion,
    ) -> None:
        super().__init__(scope, id)
        ways_in = [*lanes, tap]
        self.function = PythonFunction(
            self,
            "Handler",
            environment=environment,
            name="ingest-errors",
            folder=FOLDER,
            entry="ingest_errors",
            code=function_code(FOLDER, contract),
            layer=layer,
            size=environment.ingest_errors,
            source=errors,
            statements=[allow_send(environment=environment, queues=ways_in)],
            variables=IngestErrorsSettings(
                ways_in=tuple(queue.queue_url for queue in ways_in),
                letters_to=(lanes[0].queue_url, tap.queue_url),
                source=contract.device.outbox.address,
                contract=contract.version,
            ).variables(),
        ).function
