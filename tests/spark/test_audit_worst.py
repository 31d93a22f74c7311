"""Days on which little is ordinary, in small. `make audit-worst` is the large: it measures their memory."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from glue_jobs.delivery_audit.main import main
from lab.archive_generator.flows import audited_contracts
from lab.archive_generator.generator import generate
from lab.benchmarks.audit.worst import DAYS, LESS, counted

AS_OF = ("--DATE", "all", "--AS_OF", "2026-04-01T00:00:00Z")
EVENTS = 3_000


@pytest.mark.parametrize(("name", "events"), [("dead_ledger", EVENTS), ("half_wrong", EVENTS * LESS)])
def test_a_day_on_which_little_is_ordinary_is_judged_by_spark_and_rightly(
    name: str,
    events: int,
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    day = DAYS[name](events)
    generate(tmp_path, day.plan, audited_contracts())
    expected = day.plant(tmp_path / "archive")
    report = main(["--INPUT", str(tmp_path / "archive"), "--OUTPUT", str(tmp_path / "audit"), *AS_OF])
    assert "screening" in capsys.readouterr().err
    found = counted(report)
    assert {each: found.get(each, 0) for each in expected} == expected
    assert report["totals"]["incomplete" if name == "dead_ledger" else "to_replay"]
