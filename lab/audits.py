"""The delivery audit over archives of complete runs."""

import os
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from eventplane.account import Fate, reader_of
from eventplane.archive_layout import VERDICTS, last_report
from eventplane.names import OWN_SERVICES
from glue_jobs.delivery_audit.rules import LATENESS_S
from lab.cloud import ROOT
from lab.errors import LocalError, LoggedError
from lab.process import Supervisor


class AuditFailedError(LoggedError):
    """The audit job ended with an error; its log has the reason."""

    def __init__(self, returncode: int, log: Path) -> None:
        self.returncode = returncode
        super().__init__(f"the audit ended with status {returncode}", log)


class NoReportError(LocalError):
    """No audit has filed a report on `window` in the folder `output`."""

    def __init__(self, output: Path, window: str) -> None:
        self.output = output
        self.window = window
        super().__init__(
            f"{output}: no report on {window!r}; run the audit with this --OUTPUT and --DATE first"
        )


def run_audits(supervisor: Supervisor, outputs: Mapping[Path, Path]) -> list[dict[str, Any]]:
    """Audit archives, each into the output folder by its archive, and return their reports in order.

    Raises `AuditFailedError`.
    """
    # Everything arrived before the archive was fetched, so a record that is missing now is lost: the
    # audit need not wait for late records.
    as_of = (datetime.now(UTC) + timedelta(seconds=LATENESS_S)).isoformat()
    command = [sys.executable, "-m", "glue_jobs.delivery_audit", "--AS_OF", as_of]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    jobs = [
        supervisor.start(
            f"audit of {archive.name}",
            [*command, "--INPUT", str(archive), "--OUTPUT", str(output)],
            env=environment,
        )
        for archive, output in outputs.items()
    ]
    for job in jobs:
        if returncode := job.wait():
            raise AuditFailedError(returncode, job.log)
    return [read_report(output) for output in outputs.values()]


def read_report(output: Path, window: str = "all") -> dict[str, Any]:
    """Return the last report on `window` (a day, or `all`) that an audit filed in the folder `output`.

    Raises `NoReportError`.
    """
    report = last_report(lambda name: _read(output / name), window)
    if report is None:
        raise NoReportError(output, window)
    return dict(report)


def last_window(output: Path) -> str:
    """Return what was audited last into the folder `output`, a day or `all`. Raises `NoReportError`."""
    verdicts = list((output / VERDICTS).glob("*.json"))
    if not verdicts:
        raise NoReportError(output, "all")
    return max(verdicts, key=lambda each: each.stat().st_mtime_ns).stem


def _read(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def both_ends(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what the readers of each inbox took: in homes by manifests, in the cloud by handovers.

    What is `not known` left no record: the inbox asks for no receipts, or evidence is missing. Inboxes that
    functions of the plane read are left out.
    """
    homes = [[each["inbox"], "home", *(each[name] for name in _AT_HOME)] for each in report.get("homes", ())]
    cloud = [
        [each["inbox"], "cloud", *(sum(each[fate] for fate in fates) for fates in _IN_CLOUD)]
        for each in report.get("accounts", ())
        if each["inbox"] and reader_of(each["inbox"]) not in OWN_SERVICES
    ]
    names = "inbox", "where", "due", "taken", "ended otherwise", "lost", "waiting"
    return [
        {**dict(zip(names, row, strict=True)), "not known": row[2] - sum(row[3:])} for row in homes + cloud
    ]


_AT_HOME: Final = ("stated", "receipt", "explained", "lost", "pending")
_ENDED: Final = (Fate.GIVEN_UP, Fate.REFUSED, Fate.EXPIRED, Fate.DROPPED)
_IN_CLOUD: Final = (Fate, (Fate.HANDLED,), _ENDED, (Fate.LOST,), (Fate.WAITING,))


def taken(end: Mapping[str, Any] | None) -> str:
    """Return in words how many of the events that were due at one of `both_ends` its reader took."""
    if end is None:
        return "none was due"
    rest = (
        f", {end[name]:,} {name}" for name in ("ended otherwise", "lost", "waiting", "not known") if end[name]
    )
    return f"{end['taken']:,} of {end['due']:,}{''.join(rest)}"


_PARALLEL: Final = 8


def fetch(
    s3: Any, bucket: str, directory: Path, progress: Callable[[int, int], None] = lambda *_: None
) -> int:
    """Copy every object of `bucket` to `directory`, and return how many; `progress` gets (done, of all)."""
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)
    keys = [item["Key"] for page in pages for item in page.get("Contents", [])]

    def copy(key: str) -> None:
        target = directory / key
        target.parent.mkdir(parents=True, exist_ok=True)
        s3.download_file(bucket, key, str(target))

    with ThreadPoolExecutor(_PARALLEL) as workers:
        for done, _ in enumerate(workers.map(copy, keys), start=1):
            progress(done, len(keys))
    return len(keys)
