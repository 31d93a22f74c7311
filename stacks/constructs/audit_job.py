"""The delivery audit as a Glue job: it reads the archive and writes its verdict beside it."""

from __future__ import annotations

from typing import Final

from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from eventplane.archive_layout import AUDIT
from eventplane.handover import HANDOVERS
from eventplane.ledger import CONTRACTS, LEDGER, TAP
from stacks.constructs.durable_queue import allow_send
from stacks.constructs.glue_job import GlueJob
from stacks.constructs.watch import AUDIT_METRICS
from stacks.environment import Environment
from stacks.settings import JobSize

VERDICT: Final = "audit_totals"
"""What the job calls the member of its last line that has the totals (glue_jobs/delivery_audit/main.py)."""


class AuditJob(GlueJob):
    """`glue_jobs/delivery_audit` of one `day`, as its `--DATE`, over `archive`; its verdict goes to `outbox`.

    Each day has a job of its own: one has one run at a time and refuses the next, and only totals in
    `namespace` that are of one day tell by their silence that it was not audited.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        environment: Environment,
        name: str,
        day: str,
        size: JobSize,
        namespace: str,
        archive: s3.IBucket,
        outbox: sqs.IQueue | None,
    ) -> None:
        told = {"OUTBOX": outbox.queue_url} if outbox else {}
        super().__init__(
            scope,
            id,
            environment=environment,
            folder="delivery_audit",
            name=name,
            description="Compares what devices sent with what the routers delivered, route by route",
            size=size,
            parameters={"OUTPUT": f"s3://{archive.bucket_name}/{AUDIT}/", "DATE": day, **told},
            archive=archive,
            grants=[
                (["s3:GetObject"], [TAP, LEDGER, HANDOVERS, CONTRACTS]),
                # Spark commits by writing aside and renaming, which on S3 is copying and deleting.
                (["s3:GetObject", "s3:PutObject", "s3:DeleteObject"], [AUDIT]),
            ],
            more=[allow_send(environment=environment, queues=[outbox])] if outbox else [],
        )
        self.count_totals(VERDICT, AUDIT_METRICS, namespace)
