"""The proof in small: each fault is found at its hop, and nothing else. `make audit-proof` is the large."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.audit.proof import prove
from local.archive_generator.generator import Plan

PLAN = Plan(events=3_000, hours=4, events_an_hour=50, fault_every=20, trouble_every=7, rows=1_000)


def test_the_audit_finds_what_was_planted_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    proof = prove(spark, PLAN, tmp_path)
    wrong = {name: score.document() for name, score in proof.scores.items() if score.missed or score.invented}
    assert wrong == {}
