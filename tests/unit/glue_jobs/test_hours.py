"""Which hours the jobs work on."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from glue_jobs.common.hours import Days, Hour, hour_of, hours_of
from glue_jobs.common.objects import FolderObjects
from glue_jobs.compaction.main import read_arguments

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_an_hour_closes_half_an_hour_after_its_end() -> None:
    assert not Hour(NOON).is_closed(NOON + timedelta(minutes=89, seconds=59))
    assert Hour(NOON).is_closed(NOON + timedelta(minutes=90))


@pytest.mark.parametrize(
    ("name", "hour"),
    [
        ("tap/date=2026-03-01/hour=12/a.json.gz", Hour(NOON)),
        ("compacted/tap/date=2026-03-01/hour=12/run=ab/part-0.parquet", Hour(NOON)),
        ("audit/findings/date=2026-03-01/part-0.parquet", None),
        ("tap/date=2026-13-01/hour=12/a.json.gz", None),
        ("audit/report.json", None),
    ],
)
def test_an_object_lies_in_an_hour_or_in_none(name: str, hour: Hour | None) -> None:
    assert hour_of(name) == hour


def test_hours_come_in_order_and_strangers_not_at_all(tmp_path: Path) -> None:
    for name in (
        "date=2026-03-02/hour=00",
        "date=2026-03-01/hour=23",
        "date=2026-03-01/hour=07",
        "date=2026-03-01/hour=24",
        "date=2026-03-01/notes",
        "date=today/hour=01",
        "date=2026-13-45/hour=01",
        "date=2026-02-28/hour=01",
    ):
        (tmp_path / "tap" / name).mkdir(parents=True)
    objects = FolderObjects(tmp_path)
    found = [each.partition for each in hours_of(objects, "tap", Days(first=date(2026, 3, 1)))]
    assert found == ["date=2026-03-01/hour=07", "date=2026-03-01/hour=23", "date=2026-03-02/hour=00"]


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("all", Days()),
        ("recent", Days(date(2026, 2, 27), None)),
        ("yesterday", Days(date(2026, 2, 28), date(2026, 2, 28))),
        ("2026-02-03", Days(date(2026, 2, 3), date(2026, 2, 3))),
    ],
)
def test_a_date_says_which_days(text: str, days: Days) -> None:
    assert read_arguments(["--INPUT", "a", "--DATE", text, "--JOB_NAME", "glue's"], NOON).days == days


def test_a_wrong_date_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_arguments(["--INPUT", "a", "--DATE", "noon"], NOON)
    assert "YYYY-MM-DD" in capsys.readouterr().err
