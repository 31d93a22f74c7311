"""The job's parameters and session, and the command for people, which takes Python for small archives."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from glue_jobs.common import lines
from glue_jobs.common.lines import LargeArchiveError
from glue_jobs.common.session import (
    MAX_PARTITIONS,
    PARTITION_BYTES,
    VersionError,
    check_version,
    local_session,
    shuffle_partitions,
)
from glue_jobs.compaction.main import main as compaction
from glue_jobs.delivery_audit import __main__ as command
from glue_jobs.delivery_audit.main import AUTO, Arguments, main, read_arguments
from glue_jobs.delivery_audit.main import main as audit
from glue_jobs.delivery_audit.rules import LATENESS_S, Watermark, Window
from glue_jobs.erasure.main import main as erasure
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


@pytest.mark.parametrize(
    ("what", "found", "is_enough"),
    [
        ("boto3", "1.34.131", False),  # Glue 5.0
        ("boto3", "1.35.1", False),
        ("boto3", "1.35.2", True),
        ("boto3", "1.43.106", True),
        ("Spark", "3.3.0-amzn-1", False),  # Glue 4.0
        ("Spark", "3.5.6-amzn-0", True),
        ("Spark", "4.1.1", True),
        ("Java", "1.8.0_392", False),
        ("Java", "11.0.21", False),
        ("Java", "17", True),
        ("Java", "21.0.2", True),
    ],
)
def test_a_version_that_is_too_old_is_named_with_what_to_do(what: str, found: str, is_enough: bool) -> None:
    with (
        nullcontext() if is_enough else pytest.raises(VersionError, match=rf"^{what} is {found}.*Glue choose")
    ):
        check_version(what, found)


@pytest.mark.parametrize("main", [audit, compaction, erasure])
def test_old_boto3(main: Callable[[list[str]], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boto3, "__version__", "1.34.131")
    (tmp_path / "archive").mkdir()
    with pytest.raises(VersionError, match=r"boto3 is 1\.34\.131"):
        main(
            [
                *("--INPUT", f"{tmp_path}/archive"),
                *("--OUTPUT", f"{tmp_path}/out"),
                *("--SOURCE", "//home-1/"),
            ]
        )
    assert not (tmp_path / "out").exists()


def test_a_java_that_does_not_start_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: SparkSession.Builder) -> SparkSession:
        raise PySparkRuntimeError(error_class="JAVA_GATEWAY_EXITED", message_parameters={})

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", fail)
    with pytest.raises(VersionError, match=r"Java is not found, or does not start.*install Java 17"):
        local_session()


@pytest.mark.parametrize(
    ("size", "least", "partitions"),
    [
        (0, 1, 1),
        (0, 8, 8),
        (8 * PARTITION_BYTES, 8, 8),
        (8 * PARTITION_BYTES + 1, 8, 9),
        (550 * 10**6, 8, 132),  # five million events
        (10**15, 200, MAX_PARTITIONS),
    ],
)
def test_a_shuffle_has_partitions_by_the_size_of_the_archive(size: int, least: int, partitions: int) -> None:
    assert shuffle_partitions(size, least) == partitions
