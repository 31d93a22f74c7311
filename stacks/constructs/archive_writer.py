"""The archive tap's function: it writes down what devices sent, and tells the presence monitor how much."""

from __future__ import annotations

from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from eventplane.contract import Contract
from eventplane.ledger import QUARANTINE, TAP
from eventplane.traffic import quota_text
from stacks.constructs.archive import allow_folders
from stacks.constructs.durable_queue import allow_send
from stacks.constructs.function_assets import function_code
from stacks.constructs.python_function import PythonFunction
from stacks.environment import Environment

FOLDER = "archive_writer"


class ArchiveWriter(Construct):
    """Writes the frames of `tap` to `archive`; `traffic` takes counts of loud devices, if there is one."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        environment: Environment,
        contract: Contract,
        tap: sqs.IQueue,
        archive: s3.IBucket,
        traffic: sqs.IQueue | None,
        layer: lambda_.ILayerVersion,
    ) -> None:
        super().__init__(scope, id)
        self.function = PythonFunction(
            self,
            "Writer",
            environment=environment,
            name="archive-writer",
            folder=FOLDER,
            code=function_code(FOLDER, contract),
            layer=layer,
            size=environment.archive_writer,
            source=tap,
            statements=[
                allow_folders(
                    self,
                    environment=environment,
                    archive=archive,
                    actions=["s3:PutObject"],
                    folders=[TAP, QUARANTINE],
                ),
                *([allow_send(environment=environment, queues=[traffic])] if traffic else []),
            ],
            variables={
                "EVENTPLANE_ARCHIVE_BUCKET": archive.bucket_name,
                **(
                    {
                        "EVENTPLANE_TRAFFIC_QUEUE": traffic.queue_url,
                        "EVENTPLANE_DEVICE_QUOTA": quota_text(environment.presence.quota),
                    }
                    if traffic
                    else {}
                ),
            },
        ).function
