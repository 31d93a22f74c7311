"""A Spark job on Glue: its script and packages, logs, metrics, role, size and schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from aws_cdk import ArnFormat, AssetHashType, CfnOutput, Stack
from aws_cdk import aws_glue as glue
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_s3_assets as assets
from constructs import Construct

from eventplane.resource_names import attestation_key, work_bucket
from stacks.bundling import ROOT, copy_packages, local_bundling
from stacks.constructs.archive import EVENT_LOGS, WORK, allow_attestation, allow_folders, find_work
from stacks.constructs.log_group import log_group
from stacks.constructs.permissions import accept, allow, allow_key, arn, service_role
from stacks.plane_stack import environment_of
from stacks.settings import JobSize

GLUE_VERSION: Final = "5.1"
"""Spark 3.5.6, Python 3.11, Java 17: what runs on a laptop by the lock file."""


METRICS: Final = "Glue"
"""The namespace of what Glue says of its jobs (AWS Glue guide, "Job monitoring and debugging")."""

_KEEP: Final = ("s3:GetObject", "s3:PutObject", "s3:DeleteObject")


class GlueJob(Construct):
    """`glue_jobs/<folder>/main.py` as the job called `name`, in `self.job`.

    The output `<id>Job` of the stack names it. It takes as many workers as it has tasks for, up to its size,
    and leaves metrics (CloudWatch, namespace `Glue`) and Spark's event logs (in the work bucket).

    Args:
        folder: the job's package.
        name: what it is called, without project and environment.
        description: for people who look at the list of jobs.
        size: workers, timeout, schedule.
        parameters: its typed parameters, as its `read_arguments` knows them, without dashes.
        archive: the bucket it works on.
        grants: actions on the objects of which folders of the archive.
        bucket_actions: actions on the bucket itself, besides listing it.
        attests: whether it may attest receipts, by a role that the key's policy names; all may verify them.
        keeps_tables: whether it is given a folder for tables while it runs, as `--WORK`.
        more: what else it may do.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        folder: str,
        name: str,
        description: str,
        size: JobSize,
        parameters: Mapping[str, str],
        archive: s3.IBucket,
        grants: Sequence[tuple[Sequence[str], Sequence[str]]],
        bucket_actions: Sequence[str] = (),
        attests: bool = False,
        keeps_tables: bool = False,
        more: Sequence[iam.PolicyStatement] = (),
    ) -> None:
        super().__init__(scope, id)
        environment = environment_of(self)
        self.name = environment.resource_name(name)
        script = assets.Asset(self, "Script", path=str(ROOT / "glue_jobs" / folder / "main.py"))
        packages = assets.Asset(
            self,
            "Packages",
            path=str(ROOT / "eventplane"),
            asset_hash_type=AssetHashType.OUTPUT,
            bundling=local_bundling(lambda target: copy_packages(target, "eventplane", "glue_jobs")),
        )
        log_prefix = f"/aws-glue/jobs/{self.name}"
        logs = [
            log_group(self, f"{stream.title()}Log", f"{log_prefix}/{stream}")
            for stream in ("output", "error")
        ]
        work = find_work(self)
        folders = [f"{each}/{self.name}" for each in (EVENT_LOGS, *([WORK] if keeps_tables else []))]
        statements = [
            allow(["s3:GetObject"], [_object_arn(self, asset) for asset in (script, packages)]),
            *(allow_folders(self, archive, actions, folders) for actions, folders in grants),
            allow_folders(self, work, _KEEP, folders, work_bucket),
            *_folder_markers(archive, grants),
            *_folder_markers(work, [(_KEEP, [*folders, *(each.partition("/")[0] for each in folders)])]),
            allow(["s3:ListBucket", *bucket_actions], [archive.bucket_arn]),
            allow(["s3:ListBucket"], [work.bucket_arn]),
            iam.PolicyStatement(
                actions=["cloudwatch:PutMetricData"],
                resources=["*"],
                conditions={"StringEquals": {"cloudwatch:namespace": METRICS}},
            ),
            allow_attestation(self, signs=attests),
            allow(["logs:CreateLogStream", "logs:PutLogEvents"], [each.log_group_arn for each in logs]),
            *more,
            *allow_key(self),
        ]
        role_name = self.name if attests else None
        role = service_role(self, "Role", service="glue", name=role_name, statements=statements)
        accept(role, "IAM5[Resource::*]", "Metrics have no resources to name; the namespace is the limit.")
        self.job = glue.CfnJob(
            self,
            "Job",
            name=self.name,
            description=description,
            role=role.role_arn,
            glue_version=GLUE_VERSION,
            worker_type=size.worker_type,
            number_of_workers=size.workers,
            execution_class="FLEX" if size.is_flexible else "STANDARD",
            timeout=size.timeout_min,
            # A repeated run does what is left, or replaces its own result, so a second attempt is harmless.
            max_retries=1,
            execution_property=glue.CfnJob.ExecutionPropertyProperty(max_concurrent_runs=1),
            command=glue.CfnJob.JobCommandProperty(
                name="glueetl", python_version="3", script_location=script.s3_object_url
            ),
            default_arguments={
                "--job-language": "python",
                "--extra-py-files": packages.s3_object_url,
                "--custom-logGroup-prefix": log_prefix,
                "--enable-auto-scaling": "true",
                "--enable-metrics": "true",
                "--enable-observability-metrics": "true",
                "--enable-spark-ui": "true",
                "--spark-event-logs-path": f"s3://{work.bucket_name}/{EVENT_LOGS}/{self.name}/",
                "--INPUT": f"s3://{archive.bucket_name}/",
                "--ATTESTATION_KEY": arn(self, "kms", attestation_key(environment.name)),
                **({"--WORK": f"s3://{work.bucket_name}/{WORK}/{self.name}/"} if keeps_tables else {}),
                **{f"--{parameter}": value for parameter, value in parameters.items()},
            },
        )
        self.job.node.add_dependency(role)
        if size.schedule:
            self._start_at(size.schedule)
        CfnOutput(Stack.of(self), f"{id}Job", value=self.name)
        accept(
            self.job, "GL1", "The logs hold counts and names of routes; CloudWatch encrypts them by itself."
        )
        accept(
            self.job,
            "GL3",
            "The job keeps no bookmarks: it is told what to work on, and sees what is done already.",
        )

    def _start_at(self, schedule: str) -> None:
        trigger = glue.CfnTrigger(
            self,
            "Schedule",
            name=self.name,
            type="SCHEDULED",
            schedule=schedule,
            start_on_creation=True,
            actions=[glue.CfnTrigger.ActionProperty(job_name=self.name)],
        )
        trigger.add_resource_dependency(self.job)


def _folder_markers(
    archive: s3.IBucket, grants: Sequence[tuple[Sequence[str], Sequence[str]]]
) -> list[iam.PolicyStatement]:
    """Return what Glue's file system needs besides, to mark the folders that it has made."""
    written = [name for actions, folders in grants if "s3:PutObject" in actions for name in folders]
    if not written:
        return []
    return [allow(["s3:PutObject"], [archive.arn_for_objects(f"{name}_$folder$") for name in written])]


def _object_arn(scope: Construct, asset: assets.Asset) -> str:
    # By its exact key; `grant_read` would open the whole bucket of assets.
    return Stack.of(scope).format_arn(
        service="s3",
        region="",
        account="",
        resource=asset.s3_bucket_name,
        resource_name=asset.s3_object_key,
        arn_format=ArnFormat.SLASH_RESOURCE_NAME,
    )
