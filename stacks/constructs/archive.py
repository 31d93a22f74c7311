"""The archive: the bucket that proves what became of every event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aws_cdk import Aws, Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from eventplane.archive_layout import COMPACTED, COMPACTIONS, FOLDERS, PUBLISHED
from eventplane.resource_names import archive_bucket
from stacks.constructs.permissions import PLAIN_HTTP, accept, allow, find_key
from stacks.environment import Environment
from stacks.plane_stack import environment_of
from stacks.settings import ObjectLock, Retention

ATHENA: Final = "athena"
"""The folder of what people ask of the archive."""

_ANSWERS_DAYS: Final = 7


def archive(scope: Construct) -> s3.Bucket:
    """Return a versioned, private, encrypted bucket; what lies in it leaves by its age."""
    environment = environment_of(scope)
    key = find_key(scope)
    bucket = s3.Bucket(
        scope,
        "Bucket",
        bucket_name=_bucket_name(environment),
        versioned=True,
        encryption=s3.BucketEncryption.KMS if key else s3.BucketEncryption.S3_MANAGED,
        encryption_key=key,
        bucket_key_enabled=True if key else None,  # one request to the key for many objects
        enforce_ssl=not environment.is_emulated,
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
        removal_policy=environment.removal_policy,
        lifecycle_rules=_lifecycle(environment.retention),
        object_lock_enabled=True if environment.retention.lock else None,
        object_lock_default_retention=_default_retention(environment.retention.lock),
    )
    if environment.is_emulated:
        accept(scope, "S10", PLAIN_HTTP)
    reason = "Who read the archive is CloudTrail's to record; access logs would need a bucket, too."
    accept(scope, "S1", reason)
    return bucket


def _default_retention(lock: ObjectLock | None) -> s3.ObjectLockRetention | None:
    if lock is None:
        return None
    retention = s3.ObjectLockRetention
    locks = {"governance": retention.governance, "compliance": retention.compliance}
    return locks[lock.mode](Duration.days(lock.days))


def _lifecycle(retention: Retention) -> list[s3.LifecycleRule]:
    """The rules by which S3 deletes by itself.

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


def find_archive(scope: Construct) -> s3.IBucket:
    """Return the archive bucket, which another stack owns, found by its name."""
    return s3.Bucket.from_bucket_name(scope, "Archive", _bucket_name(environment_of(scope)))


def allow_folders(
    scope: Construct, bucket: s3.IBucket, actions: Sequence[str], folders: Sequence[str]
) -> iam.PolicyStatement:
    """Return a statement for a role in `scope` that allows `actions` on the objects in `folders`."""
    name = environment_of(scope).name
    where = archive_bucket(name, "<AWS::AccountId>", "<AWS::Region>")  # as cdk-nag writes it
    for folder in folders:
        rule = f"IAM5[Resource::arn:<AWS::Partition>:s3:::{where}/{folder}/*]"
        accept(scope, rule, "Objects are named when they are written; the folder is the limit.")
    return allow(actions, [bucket.arn_for_objects(f"{folder}/*") for folder in folders])


def _bucket_name(environment: Environment) -> str:
    return archive_bucket(environment.name, Aws.ACCOUNT_ID, Aws.REGION)
