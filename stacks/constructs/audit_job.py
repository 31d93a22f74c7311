"""The delivery audit as a Glue job: it reads the archive and writes its verdict beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aws_cdk import ArnFormat, AssetHashType, Stack
from aws_cdk import aws_glue as glue
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_s3_assets as assets
from constructs import Construct

from eventplane.handover import HANDOVERS
from eventplane.ledger import CONTRACTS, LEDGER, TAP
from stacks.bundling import ROOT, copy_packages, local_bundling
from stacks.config import Environment
from stacks.constructs.archive import allow_folders
from stacks.constructs.customer_key import allow_key
from stacks.constructs.service_role import allow, service_role
from stacks.constructs.watch import AUDIT_METRICS, audit_namespace
from stacks.findings import accept

GLUE_VERSION: Final = "5.1"
WORKER_TYPE: Final = "G.1X"
FOLDER: Final = "delivery_audit"

VERDICT: Final = "audit_totals"
"""What the job calls the member of its last line that has the totals (glue_jobs/delivery_audit/main.py)."""

AUDIT: Final = "audit"
"""The archive's folder that the job writes."""


class AuditJob(Construct):
    """`glue_jobs/delivery_audit` over `archive`."""

    def __init__(self, scope: Construct, id: str, *, environment: Environment, archive: s3.IBucket) -> None:
        super().__init__(scope, id)
        self.name = environment.resource_name("delivery-audit")
        script = assets.Asset(self, "Script", path=str(ROOT / "glue_jobs" / FOLDER / "main.py"))
        packages = assets.Asset(
            self,
            "Packages",
            path=str(ROOT / "eventplane"),
            asset_hash_type=AssetHashType.OUTPUT,
            bundling=local_bundling(_fill),
        )
        log_prefix = f"/aws-glue/jobs/{self.name}"
        log_groups = {
            stream: logs.LogGroup(
                self,
                f"{stream.title()}Log",
                log_group_name=f"{log_prefix}/{stream}",
                retention=environment.log_retention,
                removal_policy=environment.removal_policy,
            )
            for stream in ("output", "error")
        }
        for name in AUDIT_METRICS:
            # From the line that the job writes when it is done: no client, no permission, no retry.
            log_groups["output"].add_metric_filter(
                name.title(),
                filter_pattern=logs.FilterPattern.exists(f"$.{VERDICT}.{name}"),
                metric_namespace=audit_namespace(environment),
                metric_name=name,
                metric_value=f"$.{VERDICT}.{name}",
            )
        role = service_role(
            self,
            "Role",
            service="glue",
            statements=[
                allow(["s3:GetObject"], [_object_arn(self, asset) for asset in (script, packages)]),
                *self._archive_statements(environment, archive),
                *allow_key(environment),
            ],
        )
        for group in log_groups.values():
            group.grant_write(role)
        self.job = glue.CfnJob(
            self,
            "Job",
            name=self.name,
            description="Compares what devices sent with what the routers delivered, route by route",
            role=role.role_arn,
            glue_version=GLUE_VERSION,
            worker_type=WORKER_TYPE,
            number_of_workers=environment.audit_workers,
            timeout=environment.audit_timeout_min,
            # A repeated run replaces its own partitions, so a second attempt is harmless.
            max_retries=1,
            execution_property=glue.CfnJob.ExecutionPropertyProperty(max_concurrent_runs=1),
            command=glue.CfnJob.JobCommandProperty(
                name="glueetl", python_version="3", script_location=script.s3_object_url
            ),
            default_arguments={
                "--job-language": "python",
                "--extra-py-files": packages.s3_object_url,
                "--custom-logGroup-prefix": log_prefix,
                "--INPUT": f"s3://{archive.bucket_name}/",
                "--OUTPUT": f"s3://{archive.bucket_name}/{AUDIT}/",
                "--DATE": "yesterday",
            },
        )
        self.job.node.add_dependency(role)
        if environment.audit_schedule:
            trigger = glue.CfnTrigger(
                self,
                "Schedule",
                name=self.name,
                type="SCHEDULED",
                schedule=environment.audit_schedule,
                start_on_creation=True,
                actions=[glue.CfnTrigger.ActionProperty(job_name=self.name)],
            )
            trigger.add_resource_dependency(self.job)
        accept(
            self.job, "GL1", "The logs hold counts and names of routes; CloudWatch encrypts them by itself."
        )
        accept(
            self.job,
            "GL3",
            "The job keeps no bookmarks: it is told the day, and replaces that day's verdict.",
        )

    def _archive_statements(self, environment: Environment, archive: s3.IBucket) -> list[iam.PolicyStatement]:
        def folders(actions: list[str], *names: str) -> iam.PolicyStatement:
            return allow_folders(
                self, environment=environment, archive=archive, actions=actions, folders=names
            )

        return [
            folders(["s3:GetObject"], TAP, LEDGER, HANDOVERS, CONTRACTS),
            # Spark commits by writing aside and renaming, which on S3 is copying and deleting.
            folders(["s3:GetObject", "s3:PutObject", "s3:DeleteObject"], AUDIT),
            # The marker that Glue's file system puts beside a folder it has made.
            allow(["s3:PutObject"], [archive.arn_for_objects(f"{AUDIT}_$folder$")]),
            allow(["s3:ListBucket"], [archive.bucket_arn]),
        ]


def _fill(target: Path) -> None:
    copy_packages(target, "eventplane", f"glue_jobs/{FOLDER}")


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
