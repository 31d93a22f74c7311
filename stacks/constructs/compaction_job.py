"""The compaction as a Glue job: closed hours of the archive become Parquet."""

from __future__ import annotations

from typing import Final

from aws_cdk import aws_s3 as s3
from constructs import Construct

from eventplane.archive_layout import COMPACTED, COMPACTIONS, PUBLISHED, compacted_folders
from stacks.constructs.glue_job import GlueJob
from stacks.constructs.watch import COMPACTION_METRICS, compaction_namespace
from stacks.environment import Environment

TOTALS: Final = "compaction_totals"
"""What the job calls the member of its last line that has the totals (glue_jobs/compaction/main.py)."""


class CompactionJob(GlueJob):
    """`glue_jobs/compaction` over `archive`."""

    def __init__(self, scope: Construct, id: str, *, environment: Environment, archive: s3.IBucket) -> None:
        super().__init__(
            scope,
            id,
            environment=environment,
            folder="compaction",
            name="compaction",
            description="Makes sorted Parquet of the archive's closed hours, and deletes old raw objects",
            size=environment.compaction,
            parameters={"DATE": "recent", "RAW_DAYS": str(environment.retention.raw_days)},
            archive=archive,
            grants=[
                (
                    # It never overwrites what devices and routers wrote. What it deletes stays as an old
                    # version for `replaced_days`: it may delete no version.
                    ["s3:GetObject", "s3:DeleteObject"],
                    [folder.name for folder, _ in compacted_folders()],
                ),
                (
                    ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"],
                    [COMPACTED, PUBLISHED, COMPACTIONS],
                ),
            ],
        )
        self.count_totals(TOTALS, COMPACTION_METRICS, compaction_namespace(environment))
