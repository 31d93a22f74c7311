"""How the jobs on the archive run, and how long the archive keeps what."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from eventplane.archive_layout import LEAST_RAW_DAYS
from stacks.setting_error import EnvironmentSettingError

ERASURE_DAYS: Final = 30
"""Days in which a person's events have to be erased once the person asks: a month (GDPR, article 12(3))."""

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
class ObjectLock:
    """Nobody deletes a version of an object in the archive before it is `days` old (S3 Object Lock).

    A bucket that has it keeps it: it can be changed, and not taken away. Only what is written afterwards is
    locked. Objects can be replaced and deleted all the same: that makes new versions, and old ones stay.

    Args:
        mode: `governance`: roles with `s3:BypassGovernanceRetention` may delete all the same, which is the
            erasure's. `compliance`: nobody may, the account's root user neither; an erasure then leaves old
            versions, which leave by themselves after `days` and `replaced_days`.
        days: at most `compacted_days`; in compliance mode at most `ERASURE_DAYS`.
    """

    mode: Literal["governance", "compliance"]
    days: int

    def __post_init__(self) -> None:
        if self.mode not in ("governance", "compliance"):
            raise EnvironmentSettingError("lock.mode", f"is {self.mode!r}, not governance or compliance")
        if self.days < 1:
            raise EnvironmentSettingError("lock.days", f"is {self.days}, not 1 or more")
        if self.mode == "compliance" and self.days > ERASURE_DAYS:
            raise EnvironmentSettingError(
                "lock.days",
                f"is {self.days}; in compliance mode at most {ERASURE_DAYS}, as a person's events have to be "
                "gone by then",
            )


@dataclass(frozen=True, kw_only=True)
class Retention:
    """Days after which the archive deletes by itself. Contracts and receipts of erasures stay.

    Args:
        raw_days: what devices and routers wrote; the compaction deletes it once it is compacted and verified.
        compacted_days: everything about events, in whatever form.
        replaced_days: what an object was before it was overwritten or deleted.
        lock: whether versions are kept from deletion meanwhile; None: whoever may delete them can.
    """

    raw_days: int
    compacted_days: int
    replaced_days: int
    lock: ObjectLock | None = None

    def __post_init__(self) -> None:
        if self.raw_days < LEAST_RAW_DAYS:
            raise EnvironmentSettingError(
                "raw_days", f"is {self.raw_days}; the audit reads raw rows for {LEAST_RAW_DAYS} days"
            )
        if self.compacted_days <= self.raw_days:
            raise EnvironmentSettingError("compacted_days", "must be more than raw_days")
        if self.replaced_days < 1:
            raise EnvironmentSettingError("replaced_days", "must be 1 or more")
        if self.lock is not None and self.lock.days > self.compacted_days:
            raise EnvironmentSettingError("lock.days", "must not be more than compacted_days")
        if self.lock is not None and self.lock.mode == "compliance" and self.replaced_days > ERASURE_DAYS:
            # The lifecycle has to delete what the erasure cannot.
            raise EnvironmentSettingError(
                "replaced_days", f"is {self.replaced_days}; with a compliance lock at most {ERASURE_DAYS}"
            )
