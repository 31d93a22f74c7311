"""The jobs that audit, compact and erase the archive; the stack can be deployed and removed at any time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from constructs import Construct

from eventplane.archive_layout import (
    AUDIT,
    COMPACTED,
    COMPACTIONS,
    ERASURES,
    FOLDERS,
    PUBLISHED,
    Form,
    compacted_folders,
)
from eventplane.contract import Contract
from eventplane.device_record import FLEET
from eventplane.ledger import CONTRACTS, HANDOVERS, LEDGER, TAP
from eventplane.names import AUDITOR
from eventplane.resource_names import AUDIT_TODAY, COMPACTION, DELIVERY_AUDIT, ERASURE
from stacks.constructs import watch
from stacks.constructs.archive import find_archive
from stacks.constructs.glue_job import GlueJob
from stacks.constructs.queues import allow_send, find_channel_queue
from stacks.environment import Environment
from stacks.plane_stack import PlaneStack
from stacks.settings import JobSize

_READ: Final = ("s3:GetObject",)
_DELETE: Final = (*_READ, "s3:DeleteObject")
_WRITE: Final = ("s3:GetObject", "s3:PutObject", "s3:DeleteObject")


class AuditStack(PlaneStack):
    """The jobs on the archive."""

    def __init__(self, scope: Construct, environment: Environment, contract: Contract) -> None:
        super().__init__(scope, environment=environment, name="audit")
        self.archive = find_archive(self)
        auditor = contract.participants.get(AUDITOR)
        self._outbox = find_channel_queue(self, "Outbox", auditor.outbox) if auditor else None
        self._lists = (DELIVERY_AUDIT,) if environment.audit_deliveries else ()
        self._audit("DeliveryAudit", DELIVERY_AUDIT, "yesterday", environment.audit, watch.AUDIT)
        if environment.has("archive_care", contract):
            self._compaction()
            self._erasure()
        if environment.audit_today:
            size = replace(environment.audit, schedule=environment.audit_today)
            self._audit("DeliveryAuditToday", AUDIT_TODAY, "today", size, watch.AUDIT_TODAY)

    def _audit(self, id: str, name: str, day: str, size: JobSize, namespace: str) -> None:
        """The delivery audit of one `day`, as its `--DATE`; its verdict goes to the auditor's outbox.

        Each day has a job of its own: one has one run at a time and refuses the next, and only totals in a
        `namespace` that are of one day tell by their silence that it was not audited.
        """
        outbox = self._outbox
        GlueJob(
            self,
            id,
            folder="delivery_audit",
            name=name,
            description="Compares what devices sent with what the routers delivered, route by route",
            size=size,
            parameters={
                "OUTPUT": f"s3://{self.archive.bucket_name}/{AUDIT}/",
                "DATE": day,
                **_metrics(watch.audit_namespace(self.plane, namespace), watch.AUDIT_METRICS),
                **({"OUTBOX": outbox.queue_url} if outbox else {}),
                **({"DELIVERIES": "true"} if name in self._lists else {}),
            },
            archive=self.archive,
            grants=[
                (_READ, [TAP, LEDGER, HANDOVERS, CONTRACTS, FLEET]),
                (_READ, [COMPACTED, PUBLISHED, COMPACTIONS, ERASURES]),
                # Spark commits by writing aside and renaming, which on S3 is copying and deleting.
                (_WRITE, [AUDIT]),
            ],
            keeps_tables=True,
            more=[allow_send(outbox)] if outbox else [],
        )

    def _compaction(self) -> None:
        """It never overwrites what devices and routers wrote.

        What it deletes stays as an old version for `replaced_days`: it may delete no version.
        """
        GlueJob(
            self,
            "Compaction",
            folder="compaction",
            name=COMPACTION,
            description="Makes sorted Parquet of the archive's closed hours, and deletes old raw objects",
            size=self.plane.compaction,
            parameters={
                "DATE": "recent",
                "RAW_DAYS": str(self.plane.retention.raw_days),
                **_metrics(watch.compaction_namespace(self.plane), watch.COMPACTION_METRICS),
            },
            archive=self.archive,
            grants=[
                (_DELETE, [folder.name for folder, _ in compacted_folders()]),
                (_WRITE, [COMPACTED, PUBLISHED, COMPACTIONS]),
            ],
            attests=True,
        )

    def _erasure(self) -> None:
        """Only a person starts it. Its `--SOURCE` has no default: without one a run ends at once."""
        raw = [each.name for each in FOLDERS if each.is_personal and each.form is Form.LINES]
        # In compliance mode it opens nothing; the job asks for it where a version is locked.
        unlock = ["s3:BypassGovernanceRetention"] if self.plane.retention.lock else []
        GlueJob(
            self,
            "Erasure",
            folder="erasure",
            name=ERASURE,
            description="Removes a person's events from the archive, old versions included",
            size=self.plane.erasure,
            parameters={},
            archive=self.archive,
            grants=[
                (
                    [*_WRITE, "s3:DeleteObjectVersion", *unlock],
                    [*raw, COMPACTED, AUDIT, ERASURES],
                ),
                (_READ, [CONTRACTS]),
            ],
            bucket_actions=["s3:ListBucketVersions"],
            attests=True,
        )


def _metrics(namespace: str, names: Sequence[str]) -> dict[str, str]:
    """Return the parameter by which totals of a job become metrics, out of its log."""
    return {"METRICS": f"{namespace}:{','.join(names)}"}
