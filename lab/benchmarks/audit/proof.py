"""`python -m lab.benchmarks.audit.proof`: the audit against known truths, to build/bench/audit_proof.json.

The archive is audited, tampered with and audited again. Exit status 1 when one planted fault of any kind was
not found, or something was found that was not planted, or one kind was not planted at all.
"""

import json
import shutil
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from glue_jobs.common.parquet import open_session
from glue_jobs.common.session import local_session
from glue_jobs.delivery_audit.main import main as audit
from lab.archive_generator.flows import audited_contracts
from lab.archive_generator.generator import Scale, generate
from lab.archive_generator.malformed import tamper
from lab.archive_generator.truth import PLANTED, TRUTH, read_truth
from lab.benchmarks.audit.comparison import Row, Score, compare, coverage, each_device_once, quarantined
from lab.benchmarks.results import Benchmark, Figure, none

AS_OF = ("--AS_OF", "2026-04-01T00:00:00Z")
"""When the archive is looked at: long after its last record, so that nothing is pending."""


@dataclass(frozen=True, slots=True)
class AuditProof:
    """The rows `written`, how each kind at each hop was judged `before` the archive was tampered with and
    afterwards (`scores`), and the count of numbers that the audit reports as neither seen nor stated.
    """

    written: dict[str, Any]
    before: dict[str, Score]
    scores: dict[str, Score]
    unseen: int

    @property
    def wrong(self) -> dict[str, dict[str, object]]:
        """Faults that were missed, invented, or of all that can be planted not planted."""
        scores = {name: self.scores.get(name, Score()) for name in sorted({*PLANTED, *self.scores})}
        wrong = {name: each.document() for name, each in scores.items() if each.wrong or not each.planted}
        wrong |= {f"{name} (before)": each.document() for name, each in self.before.items() if each.wrong}
        if self.unseen != self.written["unseen"]:
            wrong["unseen"] = {"planted": self.written["unseen"], "found": self.unseen}
        return wrong


def prove(plan: Scale, folder: Path) -> AuditProof:
    """Generate `plan`'s archive in `folder`, audit it, tamper with it, audit it again, and compare."""
    written = generate(folder, plan, audited_contracts())
    truth = list(each_device_once(read_truth(folder / TRUTH)))
    arguments = "--INPUT", str(folder / "archive"), "--OUTPUT", str(folder / "audit"), "--DATE", "all"
    report = audit([*arguments, *AS_OF])
    silent = [row for row in report["devices"] if row["coverage"] == "silent"]
    before = compare(truth, found(folder / "audit", silent))
    truth += [asdict(each) for each in tamper(folder / "archive")]
    audit([*arguments, *AS_OF])
    scores = compare(truth, found(folder / "audit", silent))
    return AuditProof(written, before, scores, report["coverage"]["events"]["nothing"])


def found(folder: Path, silent: list[Row]) -> Iterator[Row]:
    """Yield the audit's rows in `folder`: findings, quarantine, devices; it has no table of the `silent`."""
    yield from table_rows(folder / "findings")
    yield from map(quarantined, table_rows(folder / "quarantine"))
    yield from coverage([*silent, *table_rows(folder / "devices")])


def table_rows(table: Path) -> Iterator[Row]:
    """Return the rows of a table of an audit; none where the audit found nothing to write."""
    if files := [*map(str, table.glob("date=*/*.parquet"))]:
        found = open_session().execute("SELECT * FROM read_parquet(?, hive_types_autocast = false)", [files])
        names = [each[0] for each in found.description]
        yield from (dict(zip(names, row, strict=True)) for row in found.fetchall())


def _figures(proof: AuditProof) -> list[Figure]:
    figures = [
        Figure("events", float(proof.written["events"]), "events"),
        none("not_proven", len(proof.wrong), "kinds"),
    ]
    for name, score in proof.scores.items():
        label = name.replace(" ", "_")
        note = f"{score.planted} planted, {score.found} found"
        figures += [
            Figure(f"{label}_recall", score.recall, "share", aim=1.0, note=note),
            Figure(f"{label}_precision", score.precision, "share", aim=1.0, note=note),
        ]
    return figures


def faults(options: Namespace) -> list[Figure]:
    """Prove, in a folder that is kept where `--keep` says."""
    plan = Scale(options.events, fault_every=options.fault_every, seed=options.seed, holes=True, ahead=20)
    folder = options.keep or Path(tempfile.mkdtemp(prefix="audit-proof-"))
    with local_session():
        proof = prove(plan, folder)
    if not options.keep:
        shutil.rmtree(folder)
    if proof.wrong:
        print(json.dumps(proof.wrong, indent=2, ensure_ascii=False), file=sys.stderr)
    return _figures(proof)


BENCHMARK = Benchmark(
    "audit_proof",
    {"faults": faults},
    "shares, not times",
    {
        "--events": {"type": int, "default": 1_000_000},
        "--fault-every": {"type": int, "default": 20},
        "--seed": {"type": int, "default": 1},
        "--keep": {"type": Path, "help": "a folder for archive, truth and audit"},
    },
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
