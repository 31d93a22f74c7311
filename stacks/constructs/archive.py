"""The archive: the bucket that proves what became of every event; beside it, the bucket that jobs work in.

And the keys by which the jobs that may change the archive attest that they did, and operators sign
certificates of events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from aws_cdk import Aws, Duration, Stack
from aws_cdk import aws_cloudtrail as cloudtrail
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from eventplane.archive_layout import COMPACTED, COMPACTIONS, FOLDERS, PUBLISHED
from eventplane.resource_names import (
    COMPACTION,
    ERASURE,
    archive_bucket,
    attestation_key,
    certificate_key,
    reads_bucket,
    work_bucket,
)
from eventplane.written import LISTED, WRITTEN, list_of
from stacks.constructs.permissions import PLAIN_HTTP, accept, accept_wildcard, allow, arn, find_key
from stacks.environment import Environment
from stacks.plane_stack import environment_of
from stacks.settings import ObjectLock, Retention

ATHENA: Final = "athena"
"""The folder of what people ask of the archive."""

WORK: Final = "work"
"""The work bucket's folder of what a job keeps while it runs, beneath it a folder for each job."""

EVENT_LOGS: Final = "event-logs"
"""The work bucket's folder of what Spark's history server reads, beneath it a folder for each job."""

_ANSWERS_DAYS: Final = 7

_SIGN: Final = "kms:GenerateMac"

_WORK_DAYS: Final = 1
"""What a job that was killed has left; one that ends removes it."""

_EVENT_LOG_DAYS: Final = 14

Name = Callable[[str, str, str], str]
"""A bucket's name by environment, account and region."""


def archive(scope: Construct) -> s3.Bucket:
    """Return a versioned, private, encrypted bucket; what lies in it leaves by its age."""
    retention = environment_of(scope).retention
    return _bucket(
        scope,
        archive_bucket,
        versioned=True,
        lifecycle_rules=_lifecycle(retention),
        object_lock_enabled=True if retention.lock else None,
        object_lock_default_retention=_default_retention(retention.lock),
    )


def work(scope: Construct) -> s3.Bucket:
    """Return a private, encrypted bucket without versions, whose objects leave within days.

    On the archive each table that an audit keeps while it runs would stay for `replaced_days`.
    """
    kept = {WORK: _WORK_DAYS, EVENT_LOGS: _EVENT_LOG_DAYS}
    rules = [
        s3.LifecycleRule(id=folder, prefix=f"{folder}/", expiration=Duration.days(days))
        for folder, days in kept.items()
    ]
    rules.append(s3.LifecycleRule(abort_incomplete_multipart_upload_after=Duration.days(1)))
    return _bucket(scope, work_bucket, versioned=False, lifecycle_rules=rules)


def attestation(scope: Construct) -> kms.Key:
    """Return an HMAC key with which only the jobs that may change the archive can sign.

    Its policy denies it to all others, whatever their role allows: an administrator would have to change the
    policy, which CloudTrail records.
    """
    environment = environment_of(scope)
    key = kms.Key(
        scope,
        "Key",
        alias=attestation_key(environment.name),
        description="Attests what compaction and erasure changed in the archive.",
        key_spec=kms.KeySpec.HMAC_256,
        key_usage=kms.KeyUsage.GENERATE_VERIFY_MAC,
        removal_policy=environment.removal_policy,
    )
    roles = [
        Stack.of(scope).format_arn(
            service="iam", region="", resource="role", resource_name=environment.resource_name(job)
        )
        for job in (COMPACTION, ERASURE)
    ]
    key.add_to_resource_policy(
        iam.PolicyStatement(
            effect=iam.Effect.DENY,
            principals=[iam.AnyPrincipal()],
            actions=[_SIGN],
            resources=["*"],
            conditions={"ArnNotEquals": {"aws:PrincipalArn": roles}},
        )
    )
    return key


def certificates(scope: Construct) -> kms.Key:
    """Return a key with which operators sign certificates, and nothing that runs in the plane.

    A function that writes ledger or archive would else certify its own words. No role of ours may use it, and
    its policy denies it to the code of all functions and jobs, whatever their roles allow.
    """
    environment = environment_of(scope)
    key = kms.Key(
        scope,
        "Key",
        alias=certificate_key(environment.name),
        description="Signs certificates of events, by operators.",
        key_spec=kms.KeySpec.ECC_NIST_P256,
        key_usage=kms.KeyUsage.SIGN_VERIFY,
        removal_policy=environment.removal_policy,
    )
    for condition in (
        {"Null": {"lambda:SourceFunctionArn": "false"}},
        {"StringEquals": {"glue:CredentialIssuingService": "glue.amazonaws.com"}},
    ):
        key.add_to_resource_policy(
            iam.PolicyStatement(
                effect=iam.Effect.DENY,
                principals=[iam.AnyPrincipal()],
                actions=["kms:Sign"],
                resources=["*"],
                conditions=condition,
            )
        )
    return key


def allow_attestation(scope: Construct, *, signs: bool) -> iam.PolicyStatement:
    """Return a statement for a role in `scope` that may verify receipts, and where it `signs` attest them."""
    accept_wildcard(scope, "kms", "key/*", "The key is named by its alias; the condition is the limit.")
    alias = attestation_key(environment_of(scope).name)
    return iam.PolicyStatement(
        actions=["kms:VerifyMac", *([_SIGN] if signs else [])],
        resources=[arn(scope, "kms", "key/*")],
        conditions={"StringEquals": {"kms:RequestAlias": alias}},
    )


def _bucket(scope: Construct, name: Name, **settings: Any) -> s3.Bucket:
    environment = environment_of(scope)
    key = find_key(scope)
    bucket = s3.Bucket(
        scope,
        "Bucket",
        bucket_name=_bucket_name(environment, name),
        encryption=s3.BucketEncryption.KMS if key else s3.BucketEncryption.S3_MANAGED,
        encryption_key=key,
        bucket_key_enabled=True if key else None,  # one request to the key for many objects
        enforce_ssl=not environment.is_emulated,
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
        removal_policy=environment.removal_policy,
        **settings,
    )
    if environment.is_emulated:
        accept(scope, "S10", PLAIN_HTTP)
    reason = (
        "CloudTrail records who read the archive where `records_reads` is set; access logs may miss some."
    )
    accept(scope, "S1", reason)
    return bucket


def record_reads(scope: Construct, read: s3.IBucket) -> None:
    """Have CloudTrail record each read of the objects in `read`, in a bucket of its own.

    Its files are signed, and stay for as long as the compacted archive.
    """
    environment = environment_of(scope)
    days = Duration.days(environment.retention.compacted_days)
    bucket = _bucket(scope, reads_bucket, versioned=True, lifecycle_rules=[s3.LifecycleRule(expiration=days)])
    trail = cloudtrail.Trail(
        scope,
        "Trail",
        trail_name=environment.resource_name("archive-reads"),
        bucket=bucket,
        encryption_key=find_key(scope),
        is_multi_region_trail=False,
        include_global_service_events=False,
        management_events=cloudtrail.ReadWriteType.NONE,
    )
    trail.add_s3_event_selector(
        [cloudtrail.S3EventSelector(bucket=read)], read_write_type=cloudtrail.ReadWriteType.READ_ONLY
    )


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
            for folder in (*events, COMPACTED, PUBLISHED, COMPACTIONS, WRITTEN)
        ),
        s3.LifecycleRule(id="answers", prefix=f"{ATHENA}/", expiration=Duration.days(_ANSWERS_DAYS)),
    ]


def find_archive(scope: Construct) -> s3.IBucket:
    """Return the archive bucket, which another stack owns, found by its name."""
    return s3.Bucket.from_bucket_name(scope, "Archive", _bucket_name(environment_of(scope), archive_bucket))


def find_work(scope: Construct) -> s3.IBucket:
    """Return the work bucket, which another stack owns, found by its name."""
    return s3.Bucket.from_bucket_name(scope, "Work", _bucket_name(environment_of(scope), work_bucket))


def allow_folders(
    scope: Construct,
    bucket: s3.IBucket,
    actions: Sequence[str],
    folders: Sequence[str],
    name: Name = archive_bucket,
) -> iam.PolicyStatement:
    """Return a statement for a role in `scope` that allows `actions` on the objects in `folders`.

    `name` is how `bucket` is called: the archive, or the work bucket.
    """
    # As cdk-nag writes it.
    where = name(environment_of(scope).name, "<AWS::AccountId>", "<AWS::Region>")
    for folder in folders:
        rule = f"IAM5[Resource::arn:<AWS::Partition>:s3:::{where}/{folder}/*]"
        accept(scope, rule, "Objects are named when they are written; the folder is the limit.")
    return allow(actions, [bucket.arn_for_objects(f"{folder}/*") for folder in folders])


def allow_writing(scope: Construct, archive: s3.IBucket, folders: Sequence[str]) -> list[iam.PolicyStatement]:
    """Return statements for a role in `scope` that writes objects to `folders`, and their lists.

    Of what it lists it may read, to know a write of its own whose answer was lost.
    """
    listed = [folder for folder in folders if folder in LISTED]
    writes = allow_folders(scope, archive, ["s3:PutObject"], [*folders, *map(list_of, listed)])
    return [writes, *([allow_folders(scope, archive, ["s3:GetObject"], listed)] if listed else [])]


def _bucket_name(environment: Environment, name: Name) -> str:
    return name(environment.name, Aws.ACCOUNT_ID, Aws.REGION)
