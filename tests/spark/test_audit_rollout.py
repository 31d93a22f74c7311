"""Spark and Python agree about two contracts in force, also where a router took the other one."""

from pathlib import Path

from pyspark.sql import SparkSession

from glue_jobs.delivery_audit.main import read_arguments, request_of
from tests.spark.both_ways import differences
from tests.spark.small_archive import DIARY, SmallArchive
from tests.unit.glue_jobs.test_rollout import AMID_MS, END_MS, MINUTE_MS, NEW, OLD, RolledOut


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
