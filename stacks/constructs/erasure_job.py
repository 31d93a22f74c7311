"""The erasure as a Glue job, which only a person starts."""

from __future__ import annotations

from aws_cdk import aws_s3 as s3
from constructs import Construct

from eventplane.archive_layout import AUDIT, COMPACTED, ERASURES, FOLDERS, Form
from eventplane.ledger import CONTRACTS
from stacks.constructs.glue_job import GlueJob
from stacks.environment import Environment


class ErasureJob(GlueJob):
    """`glue_jobs/erasure` over `archive`. Its `--SOURCE` has no default: without one a run ends at once."""

    def __init__(self, scope: Construct, id: str, *, environment: Environment, archive: s3.IBucket) -> None:
        raw = [each.name for each in FOLDERS if each.is_personal and each.form is Form.LINES]
        super().__init__(
            scope,
            id,
            environment=environment,
            folder="erasure",
            name="erasure",
            description="Removes a person's events from the archive, old versions included",
            size=environment.erasure,
            parameters={},
            archive=archive,
            grants=[
                (
                    [
                        "s3:GetObject",
                        "s3:PutObject",
                        "s3:DeleteObject",
                        "s3:DeleteObjectVersion",
                        # In compliance mode it opens nothing; the job asks for it where a version is locked.
                        *(["s3:BypassGovernanceRetention"] if environment.retention.lock else []),
                    ],
                    [*raw, COMPACTED, AUDIT, ERASURES],
                ),
                (["s3:GetObject"], [CONTRACTS]),
            ],
            bucket_actions=["s3:ListBucketVersions"],
        )
