"""The command for people: a short run is one of few bytes, by the days that it reads."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from glue_jobs.common.hours import Days
from glue_jobs.delivery_audit import __main__ as command
from glue_jobs.delivery_audit.main import Arguments, read_arguments
from glue_jobs.delivery_audit.rules import LATENESS_S, Watermark, Window
from tests.audit_report import report

DAY = Days(date(2026, 3, 2), date(2026, 3, 2))


@pytest.mark.parametrize("place", ["tap", "ledger", "handovers", "compacted/tap"])
def test_an_archive_is_small_by_the_days_that_are_read(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "SMALL_BYTES", 100)
    for day, size in (("2026-03-01", 100), ("2026-03-02", 99)):
        file = tmp_path / place / f"date={day}" / "hour=00" / "a.json.gz"
        file.parent.mkdir(parents=True)
        file.write_bytes(b"x" * size)
    assert command.is_small(tmp_path, DAY)
    assert not command.is_small(tmp_path, Days())
    file.write_bytes(b"x" * 100)
    assert not command.is_small(tmp_path, DAY)
    # What lies elsewhere takes as long as a large one.
    assert not command.is_small(tmp_path / "nowhere", DAY)


@pytest.mark.parametrize(("day", "said"), [("all", "all days"), ("2026-03-02", "2026-03-02")])
def test_it_says_what_it_audits_before_spark_starts_and_then_the_verdict(
    day: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def audit(_: list[str]) -> dict[str, object]:
        assert capsys.readouterr().err == f"auditing {tmp_path}, {said} ...\n"
        return report()

    monkeypatch.setattr(command, "local_run", lambda **_: nullcontext())
    monkeypatch.setattr(command, "main", audit)
    monkeypatch.setattr("sys.argv", ["audit", "--INPUT", str(tmp_path), "--OUTPUT", "o", "--DATE", day])
    assert command.run() == 0
    assert capsys.readouterr().out.startswith("verdict:  proven\ncoverage: 100")


NOON_MS = 1_772_366_400_000
MINIMAL = ["--INPUT", "a", "--OUTPUT", "b", "--AS_OF", "2026-03-01T12:00:00Z"]
ALL = Arguments("a", "b", Window(), Watermark(NOON_MS, LATENESS_S), None)


def test_each_parameter_is_the_one_that_it_is_called_and_glue_s_own_are_ignored() -> None:
    assert read_arguments([*MINIMAL, "--JOB_NAME", "glue's"]) == ALL
    more = [
        "--DATE",
        "2026-02-28",
        "--LATENESS_S",
        "0",
        "--OUTBOX",
        "https://q",
        "--WORK",
        "w",
        "--FLEET",
        "f",
    ]
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
    ],
)
def test_a_wrong_parameter_is_refused_with_the_remedy(
    words: list[str], remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        read_arguments([*MINIMAL, *words])
    assert remedy in capsys.readouterr().err
