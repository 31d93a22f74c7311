"""The proof in small: each fault is found at its hop, and nothing else. `make audit-proof` is the large."""

from pathlib import Path

from pyspark.sql import SparkSession

from glue_jobs.delivery_audit.main import read_arguments, request_of
from lab.archive_generator.generator import Scale
from lab.archive_generator.truth import PLANTED
from lab.benchmarks.audit.proof import AS_OF, prove
from tests.spark.both_ways import differences

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
