"""What an object costs after it was written: compaction, audits, storage. Deleting costs nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from benchmarks.cost.deployment import Deployment
from benchmarks.cost.prices import Units
from eventplane.ledger import TAP

_GETS: Final = 2
"""Opening an object is a HEAD and a GET (Hadoop's S3A reads the length first)."""

_LISTED: Final = 1_000
"""Objects of one LIST."""

_LISTINGS: Final = 5
"""Of an hour's objects by the compaction: before, twice by Spark, after, and when they are deleted."""

_GB: Final = 1e9
_DAYS: Final = 30
"""Of a month."""

_AUDIT: Final = "delivery-audit"
_AUDIT_TODAY: Final = "audit-today"


@dataclass(frozen=True, slots=True)
class Reads:
    """How often jobs open an average raw object, by run, and how many bytes compaction makes of one."""

    compaction: float
    audit: float
    compacted_bytes: float


@dataclass(frozen=True, slots=True)
class Written:
    """Objects and their bytes, by folder of the archive."""

    objects: Mapping[str, float]
    bytes: Mapping[str, float]


def requests(written: Written, reads: Reads, deployment: Deployment) -> Units:
    """Requests to S3 that jobs make for what was `written`, until it is deleted."""
    units: Units = Counter()
    for folder, number in written.objects.items():
        audits = _audits(deployment, folder)
        units["s3_get"] += number * _GETS * (reads.compaction + audits * reads.audit)  # type: ignore[assignment]
        units["s3_list"] += number * (_LISTINGS + audits) / _LISTED  # type: ignore[assignment]
    return units


def storage(written: Written, reads: Reads, deployment: Deployment) -> Units:
    """GB and months that what was `written` lies in the archive, raw, as old version and compacted."""
    kept = deployment.environment.retention
    months = kept.raw_days + kept.replaced_days + reads.compacted_bytes * kept.compacted_days
    return Counter({"s3_gb_month": sum(written.bytes.values()) / _GB * months / _DAYS})  # type: ignore[arg-type]


def _audits(deployment: Deployment, folder: str) -> float:
    """How many runs of audits read an object, which is written at any hour of a day.

    The nightly audit of a day reads what was written on it and what has come since midnight; the audit of the
    day so far reads half of that day, on average. Both read the tap of the day before as well.
    """
    a_day = {each.name: each.runs / _DAYS for each in deployment.jobs}
    night, today = a_day.get(_AUDIT, 0.0), a_day.get(_AUDIT_TODAY, 0.0)
    own = 1.1 * night + 0.5 * today
    return own + night + today if folder == TAP else own
