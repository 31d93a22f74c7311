"""What reads the archive, and keeps it readable: it can be deployed and removed at any time."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from aws_cdk import CfnOutput
from constructs import Construct

from eventplane.auditor import AUDITOR
from eventplane.contract import Contract
from stacks.constructs.archive import find_archive
from stacks.constructs.archive_catalog import ArchiveCatalog
from stacks.constructs.audit_job import AuditJob
from stacks.constructs.compaction_job import CompactionJob
from stacks.constructs.erasure_job import ErasureJob
from stacks.constructs.queue_pair import find_channel_queue
from stacks.constructs.watch import AUDIT, AUDIT_TODAY, audit_namespace
from stacks.environment import Environment
from stacks.plane_stack import PlaneStack


class AuditStack(PlaneStack):
    """The jobs on the archive, and its tables in the catalog."""

    def __init__(self, scope: Construct, *, environment: Environment, contract: Contract) -> None:
        super().__init__(scope, environment=environment, name="audit")
        archive = find_archive(self, "Archive", environment=environment)
        outbox = (
            find_channel_queue(
                self, "Outbox", environment=environment, channel=contract.participants[AUDITOR].outbox
            )
            if AUDITOR in contract.participants
            else None
        )
        audit = partial(AuditJob, self, environment=environment, archive=archive, outbox=outbox)
        jobs = [
            audit(
                id="DeliveryAudit",
                name="delivery-audit",
                day="yesterday",
                size=environment.audit,
                namespace=audit_namespace(environment, AUDIT),
            ),
            CompactionJob(self, "Compaction", environment=environment, archive=archive),
            ErasureJob(self, "Erasure", environment=environment, archive=archive),
        ]
        if environment.audit_today:
            jobs.append(
                audit(
                    id="DeliveryAuditToday",
                    name=AUDIT_TODAY,
                    day="today",
                    size=replace(environment.audit, schedule=environment.audit_today),
                    namespace=audit_namespace(environment, AUDIT_TODAY),
                )
            )
        for job in jobs:
            CfnOutput(self, f"{job.node.id}Job", value=job.name)
        catalog = ArchiveCatalog(self, "Catalog", environment=environment, archive=archive)
        CfnOutput(self, "CatalogDatabase", value=catalog.database_name)
