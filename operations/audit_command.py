"""`eventplane audit VERB`: run the delivery audit, and show what it found, read from the archive."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from eventplane.archive_layout import AUDIT, VERDICTS, last_report
from eventplane.errors import EventPlaneError
from eventplane.resource_names import AUDIT_TODAY, DELIVERY_AUDIT, archive_bucket, resource_name
from operations import system, text
from operations.archive import Archive, add_archive, archive_of, body_of
from operations.cloud import Cloud, enter
from operations.command import DONE, ChoiceError, add_verbs, day, positive, present, present_rows, say

_ALL: Final = "all"
_TIMEOUT_S: Final = 3_600
_PAUSE_S: Final = 5.0
"""Between two looks at a run that takes minutes, seconds."""
_SHOWN: Final = (
    "expected", "delivered", "lost", "pending", "dead_lettered", "expired", "dropped", "unrecorded",
    "duplicated",
)  # fmt: skip
"""The totals that the text shows, where a report has them; --json has all."""


class NotAuditedError(EventPlaneError):
    """The archive has no report on `window`."""

    window: str
    message = "no audit of {window} is in the archive; `eventplane audit list` lists those that are there"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs."""
    verb = add_verbs(parser)
    listing = verb("list", _list, "list what was audited, with the verdict of each")
    showing = verb("show", _show, "show the last audit of a window: verdict, reasons, counts, worst findings")
    running = verb(
        "run", _run, "run the audit of a window in the account, wait for it, and show what it found"
    )
    for each in (showing, running):
        each.add_argument(
            "window",
            type=_window,
            nargs="?",
            metavar="DAY",
            help=f"a UTC day, or `all` for the whole archive{'; default: yesterday' * (each is running)}",
        )
        for option, end in (("from", "first"), ("to", "last")):
            each.add_argument(
                f"--{option}", dest=end, type=day, metavar="DATE", help=f"the {end} of several UTC days"
            )
    running.add_argument(
        "--timeout",
        type=positive,
        default=_TIMEOUT_S,
        metavar="SECONDS",
        help="longest wait; default: %(default)s",
    )
    for each in (listing, showing):
        add_archive(each)


def _window(value: str) -> str:
    return value if value == _ALL else day(value).isoformat()


def _chosen(options: argparse.Namespace, default: str | None = None) -> str:
    """Return the window as its report names it. Raises `ChoiceError`."""
    today, first, last = system.now().date(), options.first, options.last
    window = options.window or default
    if not (first or last):
        if not window:
            raise ChoiceError("no window is named; name a day, `all`, or several days by --from and --to")
    elif not (first and last and first < last) or options.window:
        raise ChoiceError("--from and --to are two days, the first before the last; without DAY")
    else:
        window = f"{first}..{last}"
    if window != _ALL and window.rpartition("..")[2] > today.isoformat():
        raise ChoiceError(f"{window} is still to come; name a day up to {today} (UTC)")
    return window


def _list(options: argparse.Namespace) -> int:
    archive = archive_of(options)
    prefix = f"{AUDIT}/{VERDICTS}/"
    windows = [
        name.removeprefix(prefix).removesuffix(".json")
        for name in archive.names(prefix)
        if name.endswith(".json")
    ]
    reports = [(each, _report(archive, each)) for each in sorted(windows)]
    found = [{"window": window, "verdict": report["verdict"]} for window, report in reports if report]
    nothing = (
        "nothing of this archive was audited; run it by `eventplane audit run`, a folder by `make audit`"
    )
    return present_rows(
        options, found, ["WINDOW", "VERDICT"], [list(each.values()) for each in found], nothing
    )


def _run(options: argparse.Namespace) -> int:
    window = _chosen(options, str(system.now().date() - timedelta(days=1)))
    _present(options, window, audited(enter(options.env), options.env, window, options.timeout))
    return DONE


def audited(cloud: Cloud, environment: str, window: str, timeout_s: float = _TIMEOUT_S) -> Mapping[str, Any]:
    """Run the audit of a window and return its report. Raises what `GlueAudit.report` raises."""
    # Only here: a folder is read without AWS.
    from operations.glue_audit import GlueAudit
    from operations.patience import Patience

    bucket = archive_bucket(environment, cloud.account, cloud.region)
    job = _job(cloud, environment, is_today=window == system.now().date().isoformat())
    say(f"{environment}: {job} starts with {window}, after its present run if there is one; some minutes")
    audit = GlueAudit(
        cloud, job, bucket, lambda run: say(f"run {run} is in progress, also if you stop waiting")
    )
    return audit.report(window, Patience(timeout_s, _PAUSE_S))


def _job(cloud: Cloud, environment: str, *, is_today: bool) -> str:
    """Return the job whose schedule audits such a day: its alarms expect that day's totals."""
    if is_today:
        glue = cloud.client("glue")
        try:
            return str(glue.get_job(JobName=resource_name(environment, AUDIT_TODAY))["Job"]["Name"])
        except glue.exceptions.EntityNotFoundException:
            pass  # not every environment audits the day so far
    return resource_name(environment, DELIVERY_AUDIT)


def _show(options: argparse.Namespace) -> int:
    window = _chosen(options)
    report = _report(archive_of(options), window)
    if report is None:
        raise NotAuditedError(window)
    _present(options, window, report)
    return DONE


def _present(options: argparse.Namespace, window: str, report: Mapping[str, Any]) -> None:
    totals: Mapping[str, Any] = report["totals"]
    lines = [
        f"{window}: {report['verdict']}",
        *(f"  {text.word(each)}" for each in report["reasons"]),
    ]
    lines.append(
        text.pairs([(name.replace("_", " "), f"{totals[name]:,}") for name in _SHOWN if name in totals])
    )
    if kinds := report.get("kinds"):
        rows = [[each.get(name, "") for name in ("kind", "hop", "count")] for each in kinds]
        lines.append(text.table(["FINDING", "AT", "COUNT"], rows))
    present(options, report, "\n".join(lines))


def _report(archive: Archive, window: str) -> Mapping[str, Any] | None:
    try:
        return last_report(lambda name: body_of(archive, f"{AUDIT}/{name}"), window)
    except json.JSONDecodeError:
        return None
