"""The audit itself: from an archive to what it found.

What the archive has of one event is an event group, judged in Python (`judge`). Of a small archive all groups
are judged in this process; of a large one the screen counts the events with which nothing is wrong, and the
executors judge the others.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial, reduce
from operator import itemgetter
from typing import Any, Final
from uuid import uuid4

from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from eventplane.archive_layout import (
    COMPACTED,
    HANDOVERS_FOLDER,
    LEDGER_FOLDER,
    PUBLISHED,
    TAP_FOLDER,
)
from eventplane.ledger import HANDOVERS, LEDGER, TAP
from glue_jobs.common.archive import Archive, Part
from glue_jobs.common.attestation import AttestationKey
from glue_jobs.common.hours import Hour
from glue_jobs.common.objects import Objects, Stored
from glue_jobs.delivery_audit import rows
from glue_jobs.delivery_audit.cesql import AttributeColumns
from glue_jobs.delivery_audit.chain import Chain, History, chain_of
from glue_jobs.delivery_audit.completeness import Scope
from glue_jobs.delivery_audit.contracts import ContractHistory, archived, load_history
from glue_jobs.delivery_audit.coverage import Coverage, absent_hours, damaged_hours, gone_hours, hole_findings
from glue_jobs.delivery_audit.devices import Fleet, Registry, judge_fleet, read_registry
from glue_jobs.delivery_audit.errors import EmptyWindowError, NoArchiveError
from glue_jobs.delivery_audit.event_group import (
    BadRow,
    HoleCount,
    HourCount,
    LedgerRow,
    NotInTap,
    ReplayRow,
    RouteCount,
    Verdict,
)
from glue_jobs.delivery_audit.expect import attributes_of, expected_routes, filters_of
from glue_jobs.delivery_audit.figures import Figures
from glue_jobs.delivery_audit.findings import Finding
from glue_jobs.delivery_audit.judging import (
    Judged,
    Key,
    Row,
    Sample,
    Task,
    judge_rows,
    ledger_hours,
    ordered_inboxes,
    received_dead_letters,
    unreadable_hours,
    usages,
)
from glue_jobs.delivery_audit.rules import Rules, Watermark, Window
from glue_jobs.delivery_audit.screen import Screened, screened

SMALL_BYTES: Final = 8 * 2**20
"""How large the ledger is at most of an archive that is judged in one process, bytes: some 100,000 events.
Ours."""

FOUND: Final[tuple[type[Row], ...]] = (Finding, ReplayRow, BadRow, NotInTap)

Found = dict[type[Row], "list[Any] | RDD[Any]"]
"""What was found, by type of row."""


@dataclass(frozen=True, slots=True)
class Audit:
    """The result. `parts` are the folders of the archive as they were read.

    Of what was found, the chain's findings are left out. `found` is what the judge found of events, by type
    of row, in this process or in Spark. `findings` are the worst of that, and all others, the `others`;
    `kinds` counts all by kind and hop.
    """

    window: Window
    watermark: Watermark
    history: ContractHistory
    judged: Judged
    figures: Figures
    fleet: Fleet
    coverage: Coverage
    found: Found
    others: list[Finding]
    parts: dict[str, Part]
    chain: Chain

    @property
    def findings(self) -> list[Finding]:
        """The worst findings of events, and all others."""
        return [*self.judged.worst, *self.fleet.findings, *self.others]

    @property
    def kinds(self) -> Counter[tuple[str, str]]:
        """How many findings there are of each kind at each hop."""
        others = Counter((str(each.kind), str(each.hop)) for each in self.others)
        return self.judged.kinds + self.fleet.kinds + others


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be audited: the archive `objects`, with the audits before in `output`.

    Receipts count that `key` has attested. `fleet` is a file with the devices that are expected, None: the
    list in the archive. `screens` is whether ordinary events are only counted, None: if the archive is not
    small. The result is the same.
    """

    objects: Objects
    output: Objects
    work: Objects
    window: Window
    watermark: Watermark
    key: AttestationKey
    fleet: str | None = None
    screens: bool | None = None


def progress(text: str) -> None:
    """Say on standard error what is being done, for people who wait."""
    sys.stderr.write(f"{datetime.now(UTC):%H:%M:%S} {text}\n")
    sys.stderr.flush()


@contextmanager
def audited(spark: SparkSession, request: Request) -> Iterator[Audit]:
    """Audit what the request asks for; some tables are kept beneath its `work` until the block ends.

    Raises `NoArchiveError`, `NoContractError`, `AlteredContractError`, `EmptyWindowError`.
    """
    source = Archive(spark, request.objects)
    folder = f"{request.window}/{uuid4()}"
    try:
        # Each attempt has a folder of its own: one that met a damaged object leaves what it had settled.
        yield source.isolating(lambda: _Run(spark, source, request, f"{folder}/{uuid4()}").audit())
    finally:
        spark.catalog.clearCache()
        request.work.clear(folder)


class _Run:
    """One audit, from the listing of the archive on."""

    def __init__(self, spark: SparkSession, source: Archive, request: Request, folder: str) -> None:
        self._spark = spark
        self._source = source
        self._request = request
        self._folder = folder
        self._parts: dict[str, Part] = {}
        self._by_key: dict[str, Callable[[DataFrame], DataFrame]] = {}
        self._found: Found = {}
        self._is_small = True

    def audit(self) -> Audit:
        """Make it. What Spark reads may turn out to be damaged: then all of it is made again."""
        objects, window, watermark = self._request.objects, self._request.window, self._request.watermark
        if not any(
            objects.folders(f"{place}{each}") for place in ("", f"{PUBLISHED}/") for each in (TAP, LEDGER)
        ):
            raise NoArchiveError(objects.uri)
        progress(f"reading {objects.uri}")
        for each in (LEDGER_FOLDER, HANDOVERS_FOLDER):
            self._parts[each.name] = self._source.read(each, window.folders, self._request.key)
        is_large = sum(each.size for part in self._parts.values() for each in part.objects) > SMALL_BYTES
        self._is_small = not (is_large if self._request.screens is None else self._request.screens)
        ledger = self._rows(LEDGER, partial(rows.ledger_rows, self._parts[LEDGER].rows, window))
        handovers = self._rows(HANDOVERS, partial(rows.handover_rows, self._parts[HANDOVERS].rows, window))
        found = list(_padded(rows.of_ledger(ledger).collect(), "ledger")) if self._is_small else []
        decisions = (
            _named(found, "ledger")
            if self._is_small
            else list(map(LedgerRow._make, rows.summary(ledger).collect()))
        )
        contracts = archived(objects)
        # A single contract is in force all the time; else the ledger is asked.
        history, faults = load_history(objects, contracts, usages(decisions) if len(contracts) != 1 else [])
        tap = self._tap(history)
        chain = self._chain([contracts[each.version] for each in history.contracts])
        if self._is_small:
            found += _padded(rows.of_tap(tap).collect(), "tap", "item")
            found += _padded(rows.of_handovers(handovers).collect(), "handover")
            bad, dead_letters = _named(found, "bad"), received_dead_letters(decisions)
        else:
            bad = [
                BadRow._make(row.bad)
                for each in (rows.of_tap(tap), rows.of_ledger(ledger), rows.of_handovers(handovers))
                for row in each.where("bad is not null").select("bad").collect()
            ]
            dead_letters = received_dead_letters(map(LedgerRow._make, rows.dead_letters(ledger).collect()))
        seen = ledger_hours(decisions, history.uplinks, history.webhooks)
        damaged = damaged_hours(self._parts, seen, unreadable_hours(bad), chain.removed())
        task = Task(Rules(history, watermark, window, damaged), dead_letters, ordered_inboxes(history))
        judged = (
            self._judge_all(task, found) if self._is_small else self._screen(task, tap, ledger, handovers)
        )
        progress("judging the devices")
        registry, lists = read_registry(objects, window, self._request.fleet)
        fleet = self._fleet(tap, history, judged, damaged, registry)
        figures, judgement = Figures(judged), judged.judgement
        coverage = fleet.coverage(registry.name if registry else None, figures.cloud_events)
        # Where devices are expected, their silence is something to report.
        is_empty = judged.accepted_ms is None and not judgement.counts
        if is_empty and not coverage.devices["expected"]:
            raise EmptyWindowError(objects.uri, str(window))
        return Audit(
            window=window,
            watermark=watermark,
            history=history.with_uses(judged.first_decided_ms),
            judged=judged,
            figures=figures,
            fleet=fleet,
            coverage=coverage,
            found=self._found,
            others=list(
                hole_findings(
                    self._parts,
                    [*(fault for part in self._parts.values() for fault in part.faults), *faults, *lists],
                    {key: n for key, n in judgement.counts.items() if isinstance(key, HoleCount)},
                    fleet.holes,
                )
            ),
            parts=self._parts,
            chain=chain,
        )

    def _tap(self, history: ContractHistory) -> DataFrame:
        texts, typed = attributes_of(filters_of(history))
        texts |= frozenset(rows.READ_ATTRIBUTES)
        days, key = self._request.window.folders, self._request.key
        part = self._source.read(TAP_FOLDER, days, key, texts=texts, integers=typed, booleans=typed)
        self._parts[TAP] = part
        routes = expected_routes(history, AttributeColumns.read(texts, typed))
        tap = self._rows(TAP, partial(rows.tap_rows, part.rows, self._request.window, routes))
        # Of a small archive the devices read it again.
        return tap.persist() if self._is_small else tap

    def _rows(self, name: str, make: Callable[[DataFrame | None], DataFrame]) -> DataFrame:
        """Return the rows of a folder that `make` gives, of all keys.

        Those that were made of many lines are settled: each reading of these would parse them again.
        """
        raw = [each for each in self._parts[name].objects if not each.name.startswith(f"{COMPACTED}/")]
        self._by_key[name] = make
        if self._is_small or sum(each.size for each in raw) <= SMALL_BYTES:
            return make(None)
        progress(f"settling {name}")
        settled = self._settled(name, make(None))
        self._by_key[name] = lambda keys: settled.join(keys, [*rows.KEY], "left_semi")
        return settled

    def _settled(self, name: str, table: DataFrame) -> DataFrame:
        uri = f"{self._request.work.uri}/{self._folder}/{name}"
        # Few values come again; looking for those costs more than writing them.
        table.write.option("parquet.enable.dictionary", "false").parquet(uri)
        return self._spark.read.schema(table.schema).parquet(uri)

    def _chain(self, contracts: Sequence[Stored]) -> Chain:
        """Return the digests of what is judged, beside those of the audits before."""
        return chain_of(
            self._request.objects,
            self._request.key,
            History(self._request.output, str(self._request.window)),
            self._parts,
            self._request.window.folders,
            contracts,
            min(self._request.watermark.as_of_ms, int(datetime.now(UTC).timestamp() * 1_000)),
        )

    def _judge_all(self, task: Task, found: list[tuple[Any, ...]]) -> Judged:
        """Judge all rows in this process."""
        progress(f"judging {len(found):,} rows")
        found.sort(key=itemgetter(0, 1))
        made = list(judge_rows(task, found))
        self._found = {kind: [each for each in made if isinstance(each, kind)] for kind in FOUND}
        (judged,) = (each for each in made if isinstance(each, Judged))
        return judged

    def _screen(self, task: Task, tap: DataFrame, ledger: DataFrame, handovers: DataFrame) -> Judged:
        """Judge what is not ordinary by Spark, and count the rest."""
        progress("screening")
        history, watermark = task.rules.history, self._request.watermark
        events = self._settled("events", screened(tap, ledger, handovers, history, watermark, task.inboxes))
        screen = Screened.of(events, task.inboxes)
        progress(f"judging {screen.suspects:,} events")
        samples = frozenset(each.sample for each in screen.common.values())
        first = replace(task, samples=samples, overtaken=screen.overtaken, counted=screen.counted())
        judged, found = self._judged(first, screen.first_keys())
        if others := screen.add(judged, found):
            again, _ = self._judged(replace(task, overtaken={}), screen.keys_of(others))
            judged.add(again)
        return judged

    def _judged(self, task: Task, keys: DataFrame) -> tuple[Judged, dict[Key, Judged]]:
        """Judge the groups with these keys, in Python processes of the executors."""
        wanted = sf.broadcast(keys)
        parts = (
            rows.of_tap(self._by_key[TAP](wanted)),
            rows.of_ledger(self._by_key[LEDGER](wanted)),
            rows.of_handovers(self._by_key[HANDOVERS](wanted)),
        )
        union = reduce(lambda one, two: one.unionByName(two, allowMissingColumns=True), parts)
        grouped = union.select(*rows.GROUPED).repartition(*rows.KEY).sortWithinPartitions(*rows.KEY)
        # Kept in files: there may be more than the driver can hold, and judging costs more than reading.
        uri = f"{self._request.work.uri}/{self._folder}/{uuid4()}"
        grouped.rdd.mapPartitions(partial(judge_rows, task)).saveAsPickleFile(uri)
        made = self._spark.sparkContext.pickleFile(uri)
        for kind in FOUND:
            before, rdd = self._found.get(kind), made.filter(partial(_is_a, kind))
            self._found[kind] = before.union(rdd) if isinstance(before, RDD) else rdd
        judged, samples = Judged(), dict[Key, Judged]()
        for each in made.filter(partial(_is_a, (Judged, Sample))).collect():
            if isinstance(each, Sample):
                samples[each.key] = each.judged
            else:
                judged.add(each)
        return judged, samples

    def _fleet(
        self,
        tap: DataFrame,
        history: ContractHistory,
        judged: Judged,
        damaged: Mapping[str, frozenset[Hour]],
        registry: Registry | None,
    ) -> Fleet:
        """Judge the devices, of which those in the `registry` are expected."""
        window, judgement = self._request.window, judged.judgement
        fleet = judge_fleet(
            rows.good(tap),
            history.contracts,
            Scope(
                frozenset(history.uplinks),
                self._request.watermark.ms,
                end_ms=window.span_ms[1] + 1 if window.day else None,
                gone=gone_hours(damaged, self._parts[TAP]),
                damaged=frozenset(each.number for each in damaged.get(TAP, ())),
            ),
            not_in_tap=self._found[NotInTap],
            counts={key: n for key, n in judgement.counts.items() if isinstance(key, HourCount)},
            registry=registry.rows if registry else None,
            absent=absent_hours(self._parts[TAP]),
            is_small=self._is_small,
        )
        of_events, of_devices = self._found.get(Finding, []), fleet.found
        if isinstance(of_events, list) and isinstance(of_devices, list):
            of_events += of_devices
        else:
            both = (
                each if isinstance(each, RDD) else self._spark.sparkContext.parallelize(each, 1)
                for each in (of_events, of_devices)
            )
            self._found[Finding] = self._spark.sparkContext.union([*both])
        # The tap has a hole where they would be: they are not unexplained.
        for (day, route, destination), count in fleet.recovered.items():
            where = day, route, destination
            judgement.counts[RouteCount(Verdict.UNEXPLAINED, *where)] -= count
            judgement.counts[RouteCount(Verdict.UNRECORDED, *where)] += count
        return fleet


def _is_a(kind: Any, each: object) -> bool:
    return isinstance(each, kind)


def _padded(found: Iterable[Any], *names: str) -> Iterator[tuple[Any, ...]]:
    """Rows of the key, these structs and `bad` as rows with the columns `GROUPED`."""
    places = {name: place for place, name in enumerate((*rows.KEY, *names, "bad"))}
    order = [places.get(name) for name in rows.GROUPED]
    for row in found:
        yield tuple(None if place is None else row[place] for place in order)


def _named(found: Iterable[Any], name: str) -> list[Any]:
    """Return the structs of this name in rows with the columns `GROUPED`."""
    place = rows.GROUPED.index(name)
    return [rows.STRUCTS[name](row[place]) for row in found if row[place] is not None]
