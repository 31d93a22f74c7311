"""The findings as the page shows them: where each lies, and the command that follows it."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from local.audit_page.words import moment

COLUMNS: Final = (
    "kind",
    "hop",
    "detail",
    "device",
    "epoch",
    "sequence",
    "source",
    "id",
    "type",
    "route",
    "destination",
    "contract_version",
    "archive_file",
)
"""What the page shows of a finding, in its words; then come its time and the command."""

_DAY: Final = re.compile(r"date=(\d{4}-\d{2}-\d{2})")


def rows(report: Mapping[str, Any], archive: str | None) -> list[list[Any]]:
    """Return the report's findings: `COLUMNS`, the time (UTC), and the command or None."""
    return [
        [*(each.get(name) for name in COLUMNS), moment(each.get("at_ms")), trace_command(each, archive)]
        for each in report["findings"]
    ]


def objects_at(archive: str | None, page: Path) -> str | None:
    """Return what stands before an object's name in a link from `page`; None where no link can be made."""
    if archive is None:
        return None
    if archive.startswith("s3://"):
        bucket, _, prefix = archive.removeprefix("s3://").strip("/").partition("/")
        return f"https://s3.console.aws.amazon.com/s3/buckets/{bucket}?prefix={prefix and f'{prefix}/'}"
    return quote(os.path.relpath(archive, page.parent)) + "/"


def trace_command(finding: Mapping[str, Any], archive: str | None) -> str | None:
    """Return what follows the finding's event through the `archive` (None: that of the environment).

    None where the archive does not know the event's name: it never came, or was no event.
    """
    if not finding.get("source") or not finding.get("id"):
        return None
    words = ["eventplane", "trace"]
    days = sorted({*_DAY.findall(finding.get("archive_file") or ""), finding.get("date") or ""} - {""})
    if days:
        # What happened shortly before midnight may lie in the next day's folder.
        words += ["--from", days[0], "--to", str(date.fromisoformat(days[-1]) + timedelta(days=1))]
    if archive:
        words += ["--archive", archive]
        if finding.get("contract_version") and not archive.startswith("s3://"):
            words += ["--contract", f"{archive.rstrip('/')}/contracts/{finding['contract_version']}.json"]
    # A device chooses the names of its events; they must not become options.
    return shlex.join([*words, "--", finding["source"], finding["id"]])
