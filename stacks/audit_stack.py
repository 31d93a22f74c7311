"""The audit: it only reads what the others leave behind, and can be deployed and removed at any time."""

from __future__ import annotations

from aws_cdk import CfnOutput
from constructs import Construct

from stacks.config import Environment
from stacks.constructs.archive import find_archive
from stacks.constructs.audit_job import AuditJob
from stacks.plane_stack import PlaneStack


class AuditStack(PlaneStack):
    """The delivery audit job."""

    def __init__(self, scope: Construct, *, environment: Environment) -> None:
        super().__init__(scope, environment=environment, name="audit")
        archive = find_archive(self, "Archive", environment=environment)
        job = AuditJob(self, "DeliveryAudit", environment=environment, archive=archive)
        CfnOutput(self, "DeliveryAuditJob", value=job.name)
