"""The large audits in small: the proof (`make audit-proof`), its values, days on which little is ordinary
(`make audit-worst`), a roll-out, and simulated histories."""

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from contract import load_contract
from glue_jobs.common.objects import open_output
from glue_jobs.delivery_audit.main import main, read_arguments, request_of
from lab.archive_generator.flows import audited_contracts
from lab.archive_generator.generator import Scale, generate
from lab.archive_generator.truth import PLANTED
from lab.benchmarks.audit import values
from lab.benchmarks.audit.proof import AS_OF, prove
from lab.benchmarks.audit.worst import DAYS, LESS, counted
from lab.histories.history import History
from lab.histories.oracles import audited
from lab.histories.search import story_of
from tests.spark.both_ways import differences
from tests.spark.small_archive import DIARY, SmallArchive
from tests.unit.glue_jobs.test_rollout import AMID_MS, END_MS, MINUTE_MS, NEW, OLD, RolledOut

PLAN = Scale(
    events=15_360,
    hours=24,
    events_an_hour=40,
    fault_every=9,
    trouble_every=16,
    rows=1_000,
    holes=True,
    ahead=20,
)


def test_the_audit_finds_what_was_planted_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    proof = prove(PLAN, tmp_path)
    assert proof.wrong == {}
    assert proof.scores.keys() == PLANTED
    words = ["--INPUT", f"{tmp_path}/archive", "--OUTPUT", f"{tmp_path}/python", *AS_OF]
    assert differences(spark, request_of(read_arguments(words))) == {}


def test_spark_and_python_agree_about_a_roll_out(spark: SparkSession, tmp_path: Path) -> None:
    archive = SmallArchive(tmp_path / "archive")
    plane = RolledOut(archive)
    plane.traffic()
    # More than are judged by a sample: the shape of an event does not say which contract was in force.
    for at in range(200):
        plane.send(AMID_MS + at, OLD)
        plane.send(AMID_MS + at, NEW, NEW.version)
    for at_ms, by, follows in (
        (AMID_MS, OLD, NEW.version),
        (AMID_MS, NEW, None),
        (END_MS + 60 * MINUTE_MS, NEW, NEW.version),
    ):
        plane.send(at_ms + 7, by, follows)
    archive.accept(archive.event(DIARY, at_ms=AMID_MS, devicecontract=NEW.version), at_ms=AMID_MS)
    assert plane.stale
    archive.write()
    words = ["--INPUT", str(archive.folder), "--OUTPUT", str(tmp_path / "audit"), "--DATE", "all"]
    request = request_of(read_arguments([*words, "--AS_OF", "2026-04-01T00:00:00Z"]))
    assert differences(spark, request) == {}


LEAST = 20_000
"""Values that are compared."""


def test_generated_values_are_read_alike(spark: SparkSession, tmp_path: Path) -> None:
    assert values.differences(spark, tmp_path, -(-LEAST // values.VALUES), seed=7) == []


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
    words = ["--INPUT", f"{tmp_path}/archive", "--OUTPUT", f"{tmp_path}/audit", "--DATE", "all", *AS_OF]
    report = main(words)
    assert "screening" in capsys.readouterr().err
    found = counted(report)
    assert {each: found.get(each, 0) for each in expected} == expected
    assert report["totals"]["incomplete" if name == "dead_ledger" else "to_replay"]


@pytest.mark.parametrize("seed", [12, 10, 19], ids=["broken disk", "sent again", "heavy"])
def test_spark_and_python_find_the_same_in_a_history(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    history = History(story_of(seed), load_contract()).run()
    request = audited.request_of(history.cloud, audited.ended_ms(history))
    archive, work = (open_output(str(tmp_path / each)) for each in ("archive", "work"))
    for each in request.objects.beneath(""):
        archive.write(each.name, request.objects.read(each.name) or b"")
    assert differences(spark, replace(request, objects=archive, work=work)) == {}
