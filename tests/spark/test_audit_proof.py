"""The proof in small: each fault is found at its hop, and nothing else. `make audit-proof` is the large."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.audit import duckdb_run
from benchmarks.audit.agreement import DisagreementError, check
from benchmarks.audit.bench import WITHOUT
from benchmarks.audit.proof import AS_OF, prove
from benchmarks.audit.questions import Form
from glue_jobs.delivery_audit.main import main
from local.archive_generator.contracts import audited_contracts
from local.archive_generator.generator import Plan, generate
from local.archive_generator.truth import PLANTED

PLAN = Plan(
    events=13_440, hours=24, events_an_hour=40, fault_every=9, trouble_every=14, rows=1_000, holes=True
)
PLAIN = Plan(events=1_800, hours=6, events_an_hour=25, fault_every=6, trouble_every=12, without=WITHOUT)


def test_the_audit_finds_what_was_planted_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    proof = prove(spark, PLAN, tmp_path)
    assert proof.wrong == {}
    assert proof.scores.keys() == PLANTED


def test_plain_questions_have_the_same_answers(spark: SparkSession, tmp_path: Path) -> None:
    # Plain questions know nothing of damaged objects.
    generate(tmp_path, PLAIN, audited_contracts())
    archive, answers = str(tmp_path / "archive"), tmp_path / "answers"
    report = main(["--INPUT", archive, "--OUTPUT", str(tmp_path / "audit"), "--DATE", "all", *AS_OF])
    duckdb_run.main(archive, str(answers), Form.RAW)
    agreed = check(answers, report)
    assert all(agreed.values())
    report["kinds"] = []
    with pytest.raises(DisagreementError) as caught:
        check(answers, report)
    assert caught.value.counts["reordered router"][0] == 0
