"""How the jobs on the archive run, and how long the archive keeps what."""

from __future__ import annotations

import re
from dataclasses import dataclass

from eventplane.archive_layout import LEAST_RAW_DAYS
from stacks.setting_error import EnvironmentSettingError

_SCHEDULE = re.compile(r"(cron|rate)\(.+\)")


@dataclass(frozen=True, kw_only=True)
class JobSize:
    """How one Glue job runs: workers of `worker_type`, minutes after which it is stopped.

    `schedule` is when it starts, as AWS Glue writes it (`cron(...)`, UTC); None means by hand. One that
    `is_flexible` may wait for spare capacity, or lose it and start again, for two thirds of the price.
    """

    workers: int
    timeout_min: int
    schedule: str | None = None
    worker_type: str = "G.1X"
    is_flexible: bool = False

    def __post_init__(self) -> None:
        if self.workers < 2:
            raise EnvironmentSettingError("workers", f"is {self.workers}; Spark on Glue needs 2")
        if not 1 <= self.timeout_min <= 10_080:  # AWS Glue quotas: 7 days
            raise EnvironmentSettingError("timeout_min", f"is {self.timeout_min}, not within 1 to 10080")
        if self.worker_type not in ("G.1X", "G.2X"):
            raise EnvironmentSettingError("worker_type", f"is {self.worker_type!r}, not G.1X or G.2X")
        if self.schedule is not None and not _SCHEDULE.fullmatch(self.schedule):
            raise EnvironmentSettingError("schedule", f"is {self.schedule!r}, not cron(...) or rate(...)")


@dataclass(frozen=True, kw_only=True)
class Retention:
    """Days after which the archive deletes by itself. Contracts and receipts of erasures stay.

    Args:
        raw_days: what devices and routers wrote; the compaction deletes it once it is compacted and verified.
        compacted_days: everything about events, in whatever form.
        replaced_days: what an object was before it was overwritten or deleted.
    """

    raw_days: int
    compacted_days: int
    replaced_days: int

    def __post_init__(self) -> None:
        if self.raw_days < LEAST_RAW_DAYS:
            raise EnvironmentSettingError(
                "raw_days", f"is {self.raw_days}; the audit reads raw rows for {LEAST_RAW_DAYS} days"
            )
        if self.compacted_days <= self.raw_days:
            raise EnvironmentSettingError("compacted_days", "must be more than raw_days")
        if self.replaced_days < 1:
            raise EnvironmentSettingError("replaced_days", "must be 1 or more")
