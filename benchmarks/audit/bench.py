"""`python -m benchmarks.audit.bench --events 1000000 5000000`: the audit's speed, to build/bench/audit.json.

Each size is generated, audited by Spark on two cores, and asked of DuckDB on two threads, on the same files.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.audit.agreement import check
from benchmarks.audit.processes import Measured, measured
from benchmarks.audit.questions import STEPS
from benchmarks.audit.spark_run import stages
from benchmarks.results import Figure, write
from local.archive_generator.contracts import audited_contracts
from local.archive_generator.generator import Plan, generate
from local.audits import read_report

SIZES: Final = (1_000_000, 5_000_000, 20_000_000)
AIM_EVENTS_S: Final = 300_000
AIM_RATIO: Final = 0.5
AIM_GROWTH: Final = 1.2
"""The most that an event of the largest size may cost, in events of the smallest."""

CORES: Final = 2
CORES_A_DPU: Final = 4
FLEX_USD_A_DPU_HOUR: Final = 0.29
"""AWS Glue pricing, us-east-1, Flex execution; a DPU has 4 vCPU and 16 GB."""
PRICED_EVENTS: Final = 100_000_000


@dataclass(frozen=True, slots=True)
class Size:
    """One size: `events` in the archive, and what both made of it."""

    events: int
    archive_mib: float
    spark: Measured
    spark_stages: dict[str, float]
    duckdb: Measured
    duckdb_steps: dict[str, float]

    @property
    def rate(self) -> float:
        """Events a second, the start of Java included."""
        return self.events / self.spark.seconds

    @property
    def peer_rate(self) -> float:
        """DuckDB's events a second."""
        return self.events / self.duckdb.seconds

    @property
    def free_rate(self) -> float:
        """Events a second, had both cores done nothing else: by the processor's time, not the clock's."""
        return CORES * self.events / self.spark.cpu_s


def generated(events: int, folder: Path) -> dict[str, object]:
    """What the generator said of the archive of so many events in `folder`, made unless it is there."""
    marker = folder / "written.json"
    if not marker.exists():
        marker.write_text(json.dumps(generate(folder, Plan(events), audited_contracts())))
    written: dict[str, object] = json.loads(marker.read_text())
    return written


def size(events: int, archives: Path, folder: Path, duckdb_python: str) -> Size:
    """Measure one size in `folder`, which must be empty, by the archive in `archives`."""
    home = archives / str(events)
    home.mkdir(parents=True, exist_ok=True)
    written = generated(events, home)
    archive, log = home / "archive", folder / "log"
    modules = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    run = [sys.executable, "-m", "benchmarks.audit.spark_run", str(archive), str(folder / "audit"), str(log)]
    by_spark = measured(run, modules)
    answers = folder / "duckdb"
    run = [duckdb_python, "-m", "benchmarks.audit.duckdb_run", str(archive), str(answers)]
    by_duckdb = measured(run, modules)
    check(answers, read_report(folder / "audit"))
    return Size(
        events=int(str(written["events"])),
        archive_mib=sum(path.stat().st_size for path in archive.rglob("*.gz")) / 2**20,
        spark=by_spark,
        spark_stages=stages(log),
        duckdb=by_duckdb,
        duckdb_steps=json.loads((answers / STEPS).read_text()),
    )


def figures(sizes: list[Size]) -> Iterator[Figure]:
    """What is to be known of all sizes, smallest first."""
    for each in sizes:
        name = f"audit_{each.events}"
        note = f"{each.archive_mib:,.0f} MiB gzipped, {each.spark.seconds:,.1f} s"
        yield Figure(f"{name}_rate", each.rate, "events/s", AIM_EVENTS_S, note=note)
        note = "by the clock: of the disk, and of whatever else ran, too"
        yield Figure(f"{name}_ratio", each.rate / each.peer_rate, "of DuckDB", AIM_RATIO, note=note)
        by_cpu = each.duckdb.cpu_s / each.spark.cpu_s
        note = f"{each.spark.cpu_s:,.1f} s of the processor, DuckDB {each.duckdb.cpu_s:,.1f} s"
        yield Figure(f"{name}_cpu_ratio", by_cpu, "of DuckDB", AIM_RATIO, note=note)
        yield Figure(
            f"{name}_free_rate",
            each.free_rate,
            "events/s",
            AIM_EVENTS_S,
            peer="DuckDB",
            peer_value=CORES * each.events / each.duckdb.cpu_s,
            note=f"had the {CORES} cores done nothing else",
        )
        yield Figure(
            f"{name}_memory",
            each.spark.peak_mib,
            "MiB",
            higher_is_better=False,
            peer="DuckDB",
            peer_value=each.duckdb.peak_mib,
            note="resident, all processes together",
        )
        for place, (stage, took_s) in enumerate(each.spark_stages.items()):
            yield Figure(f"{name}_stages_{place}_{stage}", took_s, "s", higher_is_better=False)
        for step, took_s in each.duckdb_steps.items():
            yield Figure(f"{name}_duckdb_{step}", took_s, "s", higher_is_better=False)
    first, last = sizes[0], sizes[-1]
    if first is not last:
        # By the processor's time: other work on the machine would show as growth.
        growth = first.free_rate / last.free_rate
        note = f"seconds an event at {last.events:,} events, of those at {first.events:,}"
        yield Figure("audit_growth", growth, "times", AIM_GROWTH, higher_is_better=False, note=note)
    hours = PRICED_EVENTS / last.free_rate * CORES / CORES_A_DPU / 3_600
    note = f"{hours:.2f} DPU-hours at the rate of {last.events:,} events, without the workers' start"
    yield Figure(
        "audit_100_million_on_flex", hours * FLEX_USD_A_DPU_HOUR, "USD", higher_is_better=False, note=note
    )


def main() -> None:
    """Measure, write, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.audit.bench", description=__doc__)
    parser.add_argument("--events", type=int, nargs="+", default=list(SIZES))
    parser.add_argument(
        "--archives", type=Path, help="where archives are kept from run to run (default: nowhere)"
    )
    parser.add_argument("--duckdb-python", default=sys.executable, help="a Python that has duckdb")
    arguments = parser.parse_args()
    found = []
    for events in sorted(arguments.events):
        with tempfile.TemporaryDirectory(prefix="audit-bench-") as folder:
            archives = arguments.archives or Path(folder, "archives")
            found.append(size(events, archives, Path(folder), arguments.duckdb_python))
    command = f"python -m benchmarks.audit.bench --events {' '.join(map(str, arguments.events))}"
    write("audit", list(figures(found)), command, "wall clock of one run, other work on the machine included")


if __name__ == "__main__":
    main()
