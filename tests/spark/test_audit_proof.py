"""The proof in small: each fault is found at its hop, and nothing else. `make audit-proof` is the large."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.audit import duckdb_run
from benchmarks.audit.agreement import DisagreementError, check
from benchmarks.audit.proof import PLANTED, Proof, prove
from local.archive_generator.generator import Plan
from local.audits import read_report

PLAN = Plan(
    events=15_600, hours=24, events_an_hour=50, fault_every=18, trouble_every=12, rows=1_000, holes=True
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("proof")


@pytest.fixture(scope="module")
def proof(spark: SparkSession, folder: Path) -> Proof:
    return prove(spark, PLAN, folder)


def test_the_audit_finds_what_was_planted_and_nothing_else(proof: Proof) -> None:
    assert proof.wrong == {}
    assert proof.scores.keys() == PLANTED


def test_plain_questions_have_the_same_answers(proof: Proof, folder: Path) -> None:
    duckdb_run.main(str(folder / "archive"), str(folder / "answers"))
    report = read_report(folder / "audit")
    agreed = check(folder / "answers", report)
    assert all(agreed.values())
    report["kinds"] = []
    with pytest.raises(DisagreementError) as caught:
        check(folder / "answers", report)
    assert caught.value.counts["reordered router"][0] == 0
