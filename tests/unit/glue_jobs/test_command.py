"""The job's parameters, and the command for people, which takes Python for small archives."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest

from glue_jobs.common import lines
from glue_jobs.common.lines import LargeArchiveError
from glue_jobs.delivery_audit import __main__ as command
from glue_jobs.delivery_audit.main import AUTO, Arguments, main, read_arguments
from glue_jobs.delivery_audit.rules import LATENESS_S, Watermark, Window
from tests.audit_report import report
from tests.spark.small_archive import SmallArchive


@pytest.mark.parametrize(("day", "said"), [("all", "all days"), ("2026-03-02", "2026-03-02")])
def test_it_says_what_it_audits_before_it_begins_and_then_the_verdict(
    day: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def audit(*words: Any) -> None:
        assert capsys.readouterr().err == f"auditing {tmp_path}, {said} ...\n"
        words[-1](report(window={"date": "2026-02-26"}))

    monkeypatch.setattr(command, "main", audit)
    monkeypatch.setattr("sys.argv", ["audit", "--INPUT", str(tmp_path), "--OUTPUT", "o", "--DATE", day])
    assert command.run() == 0
    out = capsys.readouterr().out
    assert out.startswith(
        "again:    2026-02-26, which got rows since its last verdict\nverdict:  proven\ncoverage: 100"
    )
    assert out.endswith("engine:   spark\n")


def start() -> AbstractContextManager[None]:
    raise InterruptedError("Spark starts")


@pytest.mark.parametrize(
    ("bound", "most"), [("MAX_BYTES", 100), ("MAX_READ_BYTES", 2_000), ("MAX_READ_BYTES", 3_000)]
)
def test_python_audits_as_much_as_it_can_hold_and_spark_more(
    bound: str, most: int, archive: SmallArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.send()
    archive.write()
    words = ["--INPUT", str(archive.folder), "--OUTPUT", f"{archive.folder}-audit"]
    assert main(words, AUTO, start)["engine"] == "python"
    with pytest.raises(InterruptedError):
        main([*words, "--ENGINE", "spark"], AUTO, start)
    monkeypatch.setattr(lines, bound, most)
    with pytest.raises(LargeArchiveError, match=r"Python audits .* at most.*--ENGINE spark.*Java 17"):
        main([*words, "--ENGINE", "python"], AUTO, start)
    with pytest.raises(InterruptedError):
        main(words, AUTO, start)


def test_a_bucket_that_is_too_large_for_a_desk_is_an_error_before_spark_starts(
    archive: SmallArchive, aws: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.send()
    s3 = boto3.client("s3", region_name="us-east-1")
    s3.create_bucket(Bucket="archive")
    for name, body in archive.bodies().items():
        s3.put_object(Bucket="archive", Key=name, Body=body)
    monkeypatch.setattr(lines, "MAX_BYTES", 100)
    with pytest.raises(LargeArchiveError, match="a bucket on Glue"):
        main(["--INPUT", "s3://archive", "--OUTPUT", str(tmp_path)], AUTO, start)


NOON_MS = 1_772_366_400_000
MINIMAL = ["--INPUT", "a", "--OUTPUT", "b", "--AS_OF", "2026-03-01T12:00:00Z"]
ALL = Arguments("a", "b", Window(), Watermark(NOON_MS, LATENESS_S), None)


def test_each_parameter_is_the_one_that_it_is_called_and_glue_s_own_are_ignored() -> None:
    assert read_arguments([*MINIMAL, "--JOB_NAME", "glue's"]) == ALL
    more = "--DATE", "2026-02-28", "--LATENESS_S", "0", "--OUTBOX", "https://q", "--WORK", "w", "--FLEET", "f"
    assert read_arguments([*MINIMAL, *more]) == Arguments(
        "a", "b", Window(date(2026, 2, 28)), Watermark(NOON_MS, 0), "https://q", "w", "f"
    )
    # A time without a zone is UTC.
    assert read_arguments([*MINIMAL[:-1], "2026-03-01T12:00"]) == ALL
    yesterday = datetime.now(UTC).date() - timedelta(days=1)
    assert read_arguments([*MINIMAL, "--DATE", "yesterday"]).window.day in (
        yesterday,
        yesterday + timedelta(days=1),
    )


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["--DATE", "noon"], "give YYYY-MM-DD"),
        (["--AS_OF", "noon"], "give 2026-03-01T12:00:00Z"),
        (["--LATENESS_S", "-1"], "give 0 or more"),
        (["--OUTBOX", "arn:aws:sqs:x"], "give https://sqs"),
        (["--FROM", "2026-03-02", "--TO", "2026-03-01"], "the first before the last"),
        (["--FROM", "2026-03-02"], "--FROM and --TO are two days"),
        (["--METRICS", "audit"], "NAMESPACE:NAME"),
        (["--METRICS", "audit:lots"], "give names of acknowledged_lost, "),
    ],
)
def test_a_wrong_parameter_is_refused_with_the_remedy(
    words: list[str], remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        read_arguments([*MINIMAL, *words])
    assert remedy in capsys.readouterr().err
