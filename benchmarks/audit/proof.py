"""`python -m benchmarks.audit.proof`: the audit against known truths, to build/bench/audit_proof.json.

Exit status 1 when one planted fault of any kind was not found, or something was found that was not planted,
or one kind was not planted at all.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from benchmarks.audit.comparison import Row, Score, compare, quarantined
from benchmarks.results import Figure, write
from glue_jobs.common.session import local_session
from glue_jobs.delivery_audit.main import main as audit
from local.archive_generator.contracts import audited_contracts
from local.archive_generator.generator import Plan, generate
from local.archive_generator.truth import TRUTH, read_truth

AS_OF = ("--AS_OF", "2026-04-01T00:00:00Z")
"""When the archive is looked at: long after its last record, so that nothing is pending."""

PLANTED: Final = frozenset(
    f"{kind} {hop}"
    for hop, kinds in {
        "device_cloud": "lost duplicate expired dropped late forged two_senders missing_manifest "
        "epoch_change clock_skew dead_lettered",
        "iot_rule": "lost",
        "router": "lost misrouted unrouted_delivered duplicate reordered expired dead_lettered late forged "
        "not_allowed unconfirmed stale_contract clock_skew",
        "inbox_consumer": "lost duplicate dead_lettered",
        "-": "quarantined",
    }.items()
    for kind in kinds.split()
)
"""Every kind and hop that the generator plants, as docs/audit-proof.md has them."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What was `written` and how each kind at each hop was judged."""

    written: dict[str, Any]
    scores: dict[str, Score]

    @property
    def wrong(self) -> dict[str, Score]:
        """What was missed, invented or, of all that can be planted, not planted: that proves nothing."""
        scores = {name: self.scores.get(name, Score()) for name in sorted({*PLANTED, *self.scores})}
        return {
            name: score
            for name, score in scores.items()
            if score.missed or score.invented or not score.planted
        }


def prove(spark: SparkSession, plan: Plan, folder: Path) -> Proof:
    """Generate `plan`'s archive in `folder`, audit it, and compare."""
    written = generate(folder, plan, audited_contracts())
    audit(["--INPUT", str(folder / "archive"), "--OUTPUT", str(folder / "audit"), "--DATE", "all", *AS_OF])
    scores = compare(read_truth(folder / TRUTH), found(spark, folder / "audit"))
    return Proof(written, scores)


def found(spark: SparkSession, folder: Path) -> Iterator[Row]:
    """The audit's findings and its quarantine in `folder`."""
    yield from (row.asDict() for row in _rows(spark, folder / "findings"))
    yield from (quarantined(row.asDict()) for row in _rows(spark, folder / "quarantine"))


def _rows(spark: SparkSession, table: Path) -> Iterator[Any]:
    return spark.read.parquet(str(table)).toLocalIterator() if any(table.glob("date=*")) else iter(())


def _figures(proof: Proof) -> list[Figure]:
    figures = [Figure("events", float(proof.written["events"]), "events")]
    for name, score in proof.scores.items():
        label = name.replace(" ", "_")
        note = f"{score.planted} planted, {score.found} found"
        figures += [
            Figure(f"{label}_recall", score.recall, "share", aim=1.0, note=note),
            Figure(f"{label}_precision", score.precision, "share", aim=1.0, note=note),
        ]
    return figures


def main() -> int:
    """Prove, write, print; the archive is kept where `--keep` says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.audit.proof", description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--fault-every", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a folder for archive, truth and audit")
    arguments = parser.parse_args()
    plan = Plan(arguments.events, fault_every=arguments.fault_every, seed=arguments.seed)
    folder = arguments.keep or Path(tempfile.mkdtemp(prefix="audit-proof-"))
    spark = local_session()
    try:
        proof = prove(spark, plan, folder)
    finally:
        spark.stop()
        if not arguments.keep:
            shutil.rmtree(folder)
    command = f"python -m benchmarks.audit.proof --events {arguments.events} --seed {arguments.seed}"
    write("audit_proof", _figures(proof), command, "shares, not times")
    wrong = {name: score.document() for name, score in proof.wrong.items()}
    if wrong:
        print(json.dumps(wrong, indent=2, ensure_ascii=False), file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
