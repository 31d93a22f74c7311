"""`python -m lab.benchmarks.audit.bench`: the audit beside DuckDB, to build/bench/audit.json.

An archive of each size is generated, and compacted. Of both forms the command that people run is measured
from its start to its end, and DuckDB on two threads on the same files, in turn; small ones are audited
without Spark. Of what does not take minutes the median of some runs counts.
An archive of 35 days shows what an audit of one day of them lists and opens.
"""

import json
import os
import shutil
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from itertools import chain
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

from glue_jobs.delivery_audit.audit import SPARK
from glue_jobs.delivery_audit.main import AUTO
from lab.archive_generator.flows import audited_contracts
from lab.archive_generator.generator import Scale, generate
from lab.audits import read_report
from lab.benchmarks.audit.accesses import watched
from lab.benchmarks.audit.questions import STEPS, QuestionForm, check
from lab.benchmarks.processes import Measured, measured
from lab.benchmarks.results import Benchmark, Figure

SIZES: Final = (20_000, 200_000, 1_000_000, 5_000_000, 20_000_000)
SMALL: Final = 20_000
"""Events whose audit is a person's wait."""
LARGE: Final = 5_000_000
"""Events from which on the start of Java and its compiler weigh little."""

REPEAT: Final = 3

AIM_SMALL_S: Final = 3.0
AIMS: Final = {1_000_000: (60.0, 0.5), 5_000_000: (30.0, 0.8), 20_000_000: (25.0, 1.0)}
"""By size: seconds of the processor for a million events, with the compaction of a compacted archive; and the
share of DuckDB, by the audit alone."""
AIM_COMPACTION_CPU_S: Final = 30.0
AIM_MEMORY_MIB: Final = 4 * 1024
AIM_GROWTH: Final = 1.2
"""The most that an event of the largest size may cost, in events of a million."""

WITHOUT: Final = (
    *("attempt_as_text", "with_new_members", "unknown_contract"),
    *("under_another_id", "by_another_client"),
    *("settled_again", "expired_by_its_reader", "dropped_by_its_reader"),
)
"""Faults that the plain questions do not tell from others: rows of newer releases, contradictions, and what a
receipt says besides that an event has ended."""

DAYS: Final = 35
DAY: Final = "2026-03-20"
"""The day of the archive of `DAYS` days that is audited; the generator's first day is 2026-03-01."""
DAYS_PLAN: Final = Scale(events=DAYS * 24 * 50, hours=DAYS * 24)

CORES_A_DPU: Final = 4
FLEX_USD_A_DPU_HOUR: Final = 0.29
"""AWS Glue pricing, us-east-1, Flex execution; a DPU has 4 vCPU and 16 GB."""
PRICED_EVENTS: Final = 100_000_000

_AUDIT: Final = "glue_jobs.delivery_audit"
_COMPACTION: Final = "glue_jobs.compaction"


@dataclass(frozen=True, slots=True)
class Run:
    """An archive of `events` in one `form`, `asked` for, and what both made of it; the audit by `engine`.

    `stages` are the seconds of the processor that Spark's tasks took, by what they did. `compaction` is what
    it took to make the archive of this form.
    """

    asked: int
    events: int
    form: QuestionForm
    archive_mib: float
    engine: str
    audit: Measured
    stages: dict[str, float]
    duckdb: Measured
    duckdb_steps: dict[str, float]
    compaction: Measured | None

    @property
    def name(self) -> str:
        """The beginning of its figures' names."""
        return f"audit_{self.events}_{self.form}"

    @property
    def cpu_s(self) -> float:
        """Seconds of the processor for a million events."""
        return self.audit.cpu_s / self.events * 1e6


def _python(module: str, *arguments: object) -> list[str]:
    return [sys.executable, "-m", module, *map(str, arguments)]


def audit_command(archive: Path, output: Path, date: str = "all", engine: str = SPARK) -> list[str]:
    """Return the command that people run, with an `engine`."""
    return _python(_AUDIT, "--INPUT", archive, "--OUTPUT", output, "--DATE", date, "--ENGINE", engine)


def environment(log: Path | None = None) -> dict[str, str]:
    """Return the environment of a run; with `log`, Spark records its tasks in that folder."""
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    if log is not None:
        log.mkdir(parents=True)
        # Uncompressed, so that it needs no library to read.
        settings = {"enabled": "true", "dir": log.as_uri(), "compress": "false", "rolling.enabled": "false"}
        options = chain.from_iterable(
            ("--conf", f"spark.eventLog.{name}={value}") for name, value in settings.items()
        )
        environment["PYSPARK_SUBMIT_ARGS"] = " ".join([*options, "pyspark-shell"])
    return environment


def _compacted(raw: Path, target: Path, date: str = "all") -> Measured:
    """Compact a copy of the `raw` archive, and return what that took."""
    shutil.copytree(raw, target, copy_function=os.link)
    return measured(_python(_COMPACTION, "--INPUT", target, "--DATE", date), environment())


def _mib(archive: Path, form: QuestionForm) -> float:
    files = archive.rglob("*.parquet" if form is QuestionForm.COMPACTED else "*.gz")
    return sum(path.stat().st_size for path in files) / 2**20


def task_seconds(log: Path) -> dict[str, float]:
    """Return the seconds of the processor in Spark's tasks, by what their stage did, as recorded in `log`."""
    names: dict[int, str] = {}
    spent: Counter[str] = Counter()
    for path in log.iterdir():
        for line in path.read_text().splitlines():
            event = json.loads(line)
            if event["Event"] == "SparkListenerStageSubmitted":
                stage = event["Stage Info"]
                names[stage["Stage ID"]] = stage["Stage Name"].split(" at ")[0]
            elif event["Event"] == "SparkListenerTaskEnd" and event.get("Task Metrics"):
                spent[names[event["Stage ID"]]] += event["Task Metrics"]["Executor CPU Time"]
    return {name: took_ns / 1e9 for name, took_ns in spent.most_common()}


def _median(runs: Sequence[Measured]) -> Measured:
    return Measured(*(median(values) for values in zip(*map(astuple, runs), strict=True)))


def run(plan: Scale, folder: Path, repeat: int = 1) -> Iterator[Run]:
    """Generate an archive in `folder`, which must be empty, and measure each form of it `repeat` times.

    Raises `DisagreementError` when the audit and DuckDB count differently.
    """
    events = int(str(generate(folder, plan, audited_contracts())["events"]))
    archives = {QuestionForm.RAW: folder / "archive", QuestionForm.COMPACTED: folder / "compacted"}
    for form, archive in archives.items():
        compaction = (
            _compacted(archives[QuestionForm.RAW], archive) if form is QuestionForm.COMPACTED else None
        )
        by_us, by_duckdb = list[Measured](), list[Measured]()
        for at in range(repeat):
            output, log, answers = (folder / f"{form}-{name}-{at}" for name in ("audit", "log", "duckdb"))
            by_us.append(measured(audit_command(archive, output, engine=AUTO), environment(log)))
            questions = _python("lab.benchmarks.audit.duckdb_run", archive, answers, form)
            by_duckdb.append(measured(questions, environment()))
            report = read_report(output)
            check(answers, report)
        yield Run(
            asked=plan.events,
            events=events,
            form=form,
            archive_mib=_mib(archive, form),
            engine=report["engine"],
            audit=_median(by_us),
            stages=task_seconds(log),
            duckdb=_median(by_duckdb),
            duckdb_steps=json.loads((answers / STEPS).read_text()),
            compaction=compaction,
        )


def _of_run(each: Run) -> Iterator[Figure]:
    is_small, name = each.events < 2 * SMALL, each.name
    note = f"{each.archive_mib:,.0f} MiB, {each.form}, by {each.engine}; from the command's start to its end"
    yield Figure(f"{name}_time", each.audit.seconds, "s", AIM_SMALL_S if is_small else None, note=note)
    reached = [aims for size, aims in AIMS.items() if size <= each.asked]
    aim, ratio = reached[-1] if reached else (None, None)
    note = "seconds of the processor for a million events"
    theirs = each.duckdb.cpu_s / each.events * 1e6
    own = None if each.compaction else aim
    yield Figure(f"{name}_cpu", each.cpu_s, "CPU-s/M", own, None, "DuckDB", theirs, note)
    by_cpu = each.duckdb.cpu_s / each.audit.cpu_s
    note = f"{each.audit.cpu_s:,.1f} s of the processor, DuckDB {each.duckdb.cpu_s:,.1f} s"
    yield Figure(f"{name}_ratio", by_cpu, "of DuckDB", ratio, note=note)
    ours, theirs, note = each.audit.peak_mib, each.duckdb.peak_mib, "resident, all processes together"
    yield Figure(f"{name}_memory", ours, "MiB", AIM_MEMORY_MIB, None, "DuckDB", theirs, note)
    outside = each.audit.cpu_s - sum(each.stages.values())
    for place, (stage, took_s) in enumerate({"outside_tasks": outside, **each.stages}.items()):
        yield Figure(f"{name}_stages_{place}_{stage}", took_s, "CPU-s")
    for step, took_s in each.duckdb_steps.items():
        yield Figure(f"{name}_duckdb_{step}", took_s, "s")
    if each.compaction:
        took = each.compaction.cpu_s / each.events * 1e6
        limit = AIM_COMPACTION_CPU_S if aim else None
        yield Figure(f"{name}_compaction", took, "CPU-s/M", limit, note="once for an hour")
        yield Figure(f"{name}_together", each.cpu_s + took, "CPU-s/M", aim, note="audit and compaction")


def _for_fleets(largest: Run) -> Iterator[Figure]:
    """Return what `lab.benchmarks.scale` prices the jobs of a fleet by, under names without a size."""
    note = f"of {largest.events:,} events"
    yield Figure(f"audit_largest_{largest.form}_cpu", largest.cpu_s, "CPU-s/M", note=note)
    if largest.compaction:
        took = largest.compaction.cpu_s / largest.events * 1e6
        yield Figure("audit_largest_compaction", took, "CPU-s/M", note=note)


def sizes(options: Namespace) -> Iterator[Figure]:
    """Measure an archive of each size, and yield the figures of all runs, of each form the smallest first."""
    runs = list[Run]()
    for events in sorted(options.events):
        with TemporaryDirectory(prefix="audit-bench-") as folder:
            repeat = 1 if events >= LARGE else options.repeat
            runs += run(Scale(events, without=WITHOUT), Path(folder), repeat)
    runs.sort(key=lambda each: list(QuestionForm).index(each.form))
    for each in runs:
        yield from _of_run(each)
    for form in QuestionForm:
        large = [each for each in runs if each.form is form and each.engine == SPARK]
        if len(large) > 1:
            first, last = large[0], large[-1]
            note = f"CPU-seconds an event at {last.events:,} events, of those at {first.events:,}"
            growth = last.cpu_s / first.cpu_s
            yield Figure(f"audit_growth_{form}", growth, "times", AIM_GROWTH, note=note)
        if large:
            hours = large[-1].cpu_s * PRICED_EVENTS / 1e6 / CORES_A_DPU / 3_600
            rate = f"at the rate of {large[-1].events:,} events, once workers run"
            note = f"computed: {hours:.2f} DPU-hours {rate}"
            usd = hours * FLEX_USD_A_DPU_HOUR
            yield Figure(f"audit_100_million_on_flex_{form}", usd, "USD", note=note)
            yield from _for_fleets(large[-1])


def days(_: Namespace) -> Iterator[Figure]:
    """Audit one day of an archive of many, and yield what is listed and opened for it.

    Of its compacted form that day is compacted, the others are raw.
    """
    with TemporaryDirectory(prefix="audit-bench-") as name:
        folder = Path(name)
        generate(folder, DAYS_PLAN, audited_contracts())
        raw, compacted = folder / "archive", folder / "compacted"
        _compacted(raw, compacted, DAY)
        for form, archive in ((QuestionForm.RAW, raw), (QuestionForm.COMPACTED, compacted)):
            with watched(archive) as accesses:
                measured(audit_command(archive, folder / f"{form}-audit", DAY), environment())
            counts = {
                "objects_listed": accesses.objects_listed(),
                "objects_opened": len(accesses.opened),
                "folders_listed": len(accesses.listed),
            }
            objects = sum(each.is_file() for each in archive.rglob("*"))
            note = f"of {objects:,} in {DAYS} days; an audit of {DAY}"
            for kind, count in counts.items():
                yield Figure(f"audit_one_day_{form}_{kind}", count, "", note=note)


BENCHMARK = Benchmark(
    "audit",
    {"sizes": sizes, "days": days},
    f"median of {REPEAT} runs, one from {LARGE:,} events on; CPU-seconds of all its processes together, wall "
    "clock where it says so",
    {
        "--events": {"type": int, "nargs": "+", "default": list(SIZES)},
        "--repeat": {"type": int, "default": REPEAT},
    },
    notes_load=True,
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
