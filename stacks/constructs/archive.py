"""The archive: the bucket that proves what became of every event."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Aws, Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from eventplane.resource_names import archive_bucket
from stacks.constructs.archive_lifecycle import lifecycle
from stacks.constructs.customer_key import find_key
from stacks.constructs.service_role import allow
from stacks.environment import Environment
from stacks.findings import PLAIN_HTTP, accept
from stacks.settings import ObjectLock


class Archive(Construct):
    """A versioned, private, encrypted bucket; what lies in it leaves by its age."""

    def __init__(self, scope: Construct, id: str, *, environment: Environment) -> None:
        super().__init__(scope, id)
        key = find_key(self, environment)
        self.bucket = s3.Bucket(
            self,
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
            lifecycle_rules=lifecycle(environment.retention),
            object_lock_enabled=True if environment.retention.lock else None,
            object_lock_default_retention=_default_retention(environment.retention.lock),
        )
        if environment.is_emulated:
            accept(self, "S10", PLAIN_HTTP)
        accept(
            self,
            "S1",
            "Who read the archive is CloudTrail's to record; access logs would need a bucket, too.",
        )


def _default_retention(lock: ObjectLock | None) -> s3.ObjectLockRetention | None:
    if lock is None:
        return None
    retention = s3.ObjectLockRetention
    locks = {"governance": retention.governance, "compliance": retention.compliance}
    return locks[lock.mode](Duration.days(lock.days))


def find_archive(scope: Construct, id: str, *, environment: Environment) -> s3.IBucket:
    """The archive bucket, which another stack owns, found by its name."""
    return s3.Bucket.from_bucket_name(scope, id, _bucket_name(environment))


def allow_folders(
    scope: Construct,
    *,
    environment: Environment,
    archive: s3.IBucket,
    actions: Sequence[str],
    folders: Sequence[str],
) -> iam.PolicyStatement:
    """A statement for a role in `scope` that allows `actions` on the objects in `folders` of `archive`."""
    bucket = archive_bucket(environment.name, "<AWS::AccountId>", "<AWS::Region>")  # as cdk-nag writes it
    for folder in folders:
        arn = f"arn:<AWS::Partition>:s3:::{bucket}/{folder}/*"
        accept(
            scope,
            f"IAM5[Resource::{arn}]",
            "Objects are named when they are written; the folder is the limit.",
        )
    return allow(actions, [archive.arn_for_objects(f"{folder}/*") for folder in folders])


def _bucket_name(environment: Environment) -> str:
    return archive_bucket(environment.name, Aws.ACCOUNT_ID, Aws.REGION)
