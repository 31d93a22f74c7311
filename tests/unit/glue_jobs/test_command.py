"""The command for people: a short run is one of few bytes, by the days that it reads."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import date
from pathlib import Path

import pytest

from glue_jobs.common.hours import Days
from glue_jobs.delivery_audit import __main__ as command
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
