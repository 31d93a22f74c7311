"""The functions that write the archive: what devices sent, and what routers decided."""

from __future__ import annotations

from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from eventplane.contract import Contract
from eventplane.function_settings import ArchiveWriterSettings, LedgerWriterSettings
from eventplane.ledger import CONTRACTS, LEDGER, QUARANTINE, TAP
from stacks.constructs.archive import allow_folders
from stacks.constructs.durable_queue import allow_send
from stacks.constructs.function_assets import function_code
from stacks.constructs.python_function import PythonFunction
from stacks.environment import Environment

FOLDER = "archive"


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
            entry="tap",
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
            variables=ArchiveWriterSettings(
                archive_bucket=archive.bucket_name,
                traffic_queue=traffic.queue_url if traffic else None,
                device_quota=environment.presence.quota if traffic else None,
            ).variables(),
        ).function


class LedgerWriter(Construct):
    """Writes the messages of `ledger`, decisions of routers and their contracts, to `archive`."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        environment: Environment,
        contract: Contract,
        ledger: sqs.IQueue,
        archive: s3.IBucket,
        layer: lambda_.ILayerVersion,
    ) -> None:
        super().__init__(scope, id)
        self.function = PythonFunction(
            self,
            "Writer",
            environment=environment,
            name="ledger-writer",
            folder=FOLDER,
            entry="ledger",
            code=function_code(FOLDER, contract),
            layer=layer,
            size=environment.ledger_writer,
            source=ledger,
            statements=[
                allow_folders(
                    self,
                    environment=environment,
                    archive=archive,
                    actions=["s3:PutObject"],
                    folders=[LEDGER, CONTRACTS],
                )
            ],
            variables=LedgerWriterSettings(archive.bucket_name).variables(),
        ).function
