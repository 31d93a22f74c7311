"""What reads the archive, and keeps it readable: it can be deployed and removed at any time."""

from __future__ import annotations

from aws_cdk import CfnOutput
from constructs import Construct

from stacks.config import Environment
from stacks.constructs.archive import find_archive
from stacks.constructs.archive_catalog import ArchiveCatalog
from stacks.constructs.audit_job import AuditJob
from stacks.constructs.compaction_job import CompactionJob
from stacks.constructs.erasure_job import ErasureJob
from stacks.plane_stack import PlaneStack


class AuditStack(PlaneStack):
    """The jobs on the archive, and its tables in the catalog."""

    def __init__(self, scope: Construct, *, environment: Environment) -> None:
        super().__init__(scope, environment=environment, name="audit")
        archive = find_archive(self, "Archive", environment=environment)
        for job in (
            AuditJob(self, "DeliveryAudit", environment=environment, archive=archive),
            CompactionJob(self, "Compaction", environment=environment, archive=archive),
            ErasureJob(self, "Erasure", environment=environment, archive=archive),
        ):
            CfnOutput(self, f"{job.node.id}Job", value=job.name)
        catalog = ArchiveCatalog(self, "Catalog", environment=environment, archive=archive)
        CfnOutput(self, "CatalogDatabase", value=catalog.database_name)
