"""When what leaves the archive, as rules that S3 follows by itself."""

from __future__ import annotations

from typing import Final

from aws_cdk import Duration
from aws_cdk import aws_s3 as s3

from eventplane.archive_layout import COMPACTED, COMPACTIONS, FOLDERS, PUBLISHED
from stacks.settings import Retention

ATHENA: Final = "athena"
"""The folder of what people ask of the archive."""

_ANSWERS_DAYS: Final = 7


def lifecycle(retention: Retention) -> list[s3.LifecycleRule]:
    """The rules of the archive bucket.

    Raw objects leave earlier than by these: the compaction deletes what it has verified, after `raw_days`.
    """
    events = sorted({each.name.partition("/")[0] for each in FOLDERS if each.is_personal})
    return [
        s3.LifecycleRule(
            noncurrent_version_expiration=Duration.days(retention.replaced_days),
            abort_incomplete_multipart_upload_after=Duration.days(1),
            expired_object_delete_marker=True,
        ),
        *(
            s3.LifecycleRule(
                id=f"{folder}-retention",
                prefix=f"{folder}/",
                expiration=Duration.days(retention.compacted_days),
            )
            for folder in (*events, COMPACTED, PUBLISHED, COMPACTIONS)
        ),
        s3.LifecycleRule(id="answers", prefix=f"{ATHENA}/", expiration=Duration.days(_ANSWERS_DAYS)),
    ]
