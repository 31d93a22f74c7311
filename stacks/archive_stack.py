"""What must outlive everything else: the archive."""

from __future__ import annotations

from aws_cdk import CfnOutput
from constructs import Construct

from stacks.constructs.archive import Archive
from stacks.environment import Environment
from stacks.plane_stack import PlaneStack


class ArchiveStack(PlaneStack):
    """The archive bucket."""

    def __init__(self, scope: Construct, *, environment: Environment) -> None:
        super().__init__(scope, environment=environment, name="archive", holds_state=True)
        bucket = Archive(self, "Archive", environment=environment).bucket
        CfnOutput(self, "ArchiveBucket", value=bucket.bucket_name)
