"""Archives without a fault, damaged by hand: the audit reports each damage and accuses nobody else."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from glue_jobs.delivery_audit.main import main
from local.archive_generator.contracts import audited_contracts
from local.archive_generator.generator import Plan, generate
from tests.spark.damage.archive import DAY
from tests.spark.damage.expected import problems
from tests.spark.damage.kinds import KINDS, TAMPERING, damage

PLAN: Final = Plan(events=6_000, hours=24, fault_every=0, trouble_every=0)
ARGUMENTS: Final = ("--DATE", DAY, "--AS_OF", "2026-04-01T00:00:00Z")

COMBINED: Final = (
    ("hour_gone_ledger", "lost_on_a_route"),
    ("hour_gone_tap", "forged_decision"),
    ("hour_gone_handovers", "lost_behind_the_inbox"),
    ("hour_gone_tap", "hour_gone_ledger"),
    ("truncated_ledger", "unknown_outcome"),
    ("truncated_tap", "acknowledged_lost"),
    ("not_gzip_tap", "only_manifests"),
    ("silent_device", "ghost_queue"),
    ("no_manifests", "truncated_ledger"),
    ("manifests_swapped", "acknowledged_lost"),
    ("reused_id", "other_type"),
    ("midnight_skew", "cut_line"),
    ("object_twice_ledger", "lost_on_a_route"),
    ("hour_moved", "early_decision"),
    ("rolling_upgrade", "lost_on_a_route"),
    ("unknown_contract", "cold_router"),
    ("altered_ledger", "acknowledged_lost"),
    ("removed_ledger", "lost_on_a_route"),
)
"""Damages that do not touch the same events: each is reported as if it were alone."""


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clean")
    generate(folder, PLAN, audited_contracts())
    return folder / "archive"


@pytest.mark.parametrize("names", [*((name,) for name in KINDS), *COMBINED], ids="+".join)
def test_damage_is_reported_and_nobody_else_is_accused(
    spark: SparkSession, clean: Path, tmp_path: Path, names: tuple[str, ...]
) -> None:
    archive = tmp_path / "archive"
    shutil.copytree(clean, archive)
    if not TAMPERING.isdisjoint(names):
        _audit(archive, tmp_path / "audit")
    expected = damage(archive, names)
    report = _audit(archive, tmp_path / "audit", *expected.arguments)
    assert problems(expected, report) == []


def _audit(archive: Path, output: Path, *more: str) -> dict[str, Any]:
    return main(["--INPUT", str(archive), "--OUTPUT", str(output), *ARGUMENTS, *more])
