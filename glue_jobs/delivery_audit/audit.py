"""The audit itself: from an archive to what it found.

What the archive has of one event is an event group, judged in Python (`judge`). Of a small archive all groups
are judged in this process (`InProcess`); of a large one the screen counts the events with which nothing is
wrong, and the executors judge the others (`_InSpark`).
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final

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
from eventplane.contract import Contract
from eventplane.ledger import HANDOVERS, LEDGER, TAP
from glue_jobs.common import system
from glue_jobs.common.archive import Archive, Part
from glue_jobs.common.attestation import AttestationKey
from glue_jobs.common.hours import Hour
from glue_jobs.common.listing import Listing
from glue_jobs.common.objects import Objects, Stored
from glue_jobs.common.session import size_shuffles
from glue_jobs.delivery_audit import rows
from glue_jobs.delivery_audit.cesql import AttributeColumns
from glue_jobs.delivery_audit.chain import Chain, History, chain_of
from glue_jobs.delivery_audit.completeness import Scope
from glue_jobs.delivery_audit.contracts import ContractHistory, archived, load_history
from glue_jobs.delivery_audit.coverage import (
    Coverage,
    absent_hours,
    damaged_hours,
    gone_hours,
    hole_findings,
    hours_of_gone,
    missing_rows,
    with_altered,
)
from glue_jobs.delivery_audit.devices import Fleet, Registry, device_hours, judge_fleet, read_registry
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
from glue_jobs.delivery_audit.expect import attributes_of, due_at_home, expected_routes, filters_of
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
    letters_of_readers,
    ordered_inboxes,
    received_dead_letters,
    unreadable_hours,
    usages,
)
from glue_jobs.delivery_audit.rules import Rules, Watermark, Window
from glue_jobs.delivery_audit.screen import Screened, screened

if TYPE_CHECKING:
    from glue_jobs.common.lines import PlainArchive

PYTHON: Final = "python"
SPARK: Final = "spark"
"""What reads the archive: this process, or Spark."""

SMALL_BYTES: Final = 8 * 2**20
"""How large an archive is at most that is judged in one process, bytes: some 70,000 events. Ours."""

SMALL_ROWS: Final = 300_000
"""Most rows that one process judges: few bytes of gzip may be many rows. Ours: some 500 MB."""

MAX_BROADCAST: Final = 500_000
"""Most keys, of 16 bytes, that every task gets a copy of; more are joined by sorting. Ours: near the 10 MiB
up to which Spark broadcasts a table by itself."""

FOUND: Final[tuple[type[Row], ...]] = (Finding, ReplayRow, BadRow, NotInTap)

Found = dict[type[Row], "list[Any] | RDD[Any]"]
"""What was found, by type of row."""

_FOLDERS: Final = (TAP_FOLDER, LEDGER_FOLDER, HANDOVERS_FOLDER)
"""The largest first."""

_Make = Callable[..., DataFrame]
"""Makes the rows to be judged of the rows of a folder: all, or those that have one of the keys."""


@dataclass(frozen=True, slots=True)
class Audit:
    """The result. `parts` are the folders of the archive as they were read.

    Of what was found, the chain's findings are left out. `found` is what the judge found of events, by type
    of row, in this process or in Spark. `findings` are the worst of that, and all others, the `others`;
    `kinds` counts all by kind and hop. `engine` is `PYTHON` or `SPARK`.
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
    engine: str

    @property
    def findings(self) -> list[Finding]:
        """The worst findings of events, and all others."""
        return [*self.judged.worst, *self.fleet.findings, *self.others]

    @property
    def kinds(self) -> Counter[tuple[str, str]]:
        """How many findings there are of each kind at each hop."""
        others = Counter((str(each.kind), str(each.hop)) for each in self.others)
        return self.judged.kinds + self.fleet.kinds + others


def progress(text: str) -> None:
    """Say on standard error what is being done, for people who wait."""
    sys.stderr.write(f"{system.now():%H:%M:%S} {text}\n")
    sys.stderr.flush()


def _now_ms() -> int:
    return int(system.now().timestamp() * 1_000)


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be audited: the archive `objects`, with the audits before in `output`.

    Receipts count that `key` has attested. `fleet` is a file with the devices that are expected, None: the
    list in the archive. `screens` is whether ordinary events are only counted, None: if the archive is not
    small. The result is the same. `now_ms` is the clock, Unix milliseconds; `progress` is called with
    what is being done, for people who wait.
    """

    objects: Objects
    output: Objects
    work: Objects
    window: Window
    watermark: Watermark
    key: AttestationKey
    fleet: str | None = None
    screens: bool | None = None
    now_ms: Callable[[], int] = _now_ms
    progress: Callable[[str], None] = progress


@contextmanager
def audited(spark: SparkSession, request: Request) -> Iterator[Audit]:
    """Audit what the request asks for; some tables are kept beneath its `work` until the block ends.

    Raises `NoArchiveError`, `NoContractError`, `AlteredContractError`, `EmptyWindowError`.
    """
    source = Archive(spark, request.objects)
    folder = f"{request.window}/{system.new_id()}"

    def attempt() -> Audit:
        # Each has a folder of its own: one that met a damaged object leaves what it had settled.
        uri = f"{request.work.uri}/{folder}/{system.new_id()}"

        def events(size: int) -> InProcess | _InSpark:
            size_shuffles(spark, size)
            if size > SMALL_BYTES if request.screens is None else request.screens:
                return _InSpark(request.progress, spark, uri)
            return InProcess(request.progress)

        with suppress(_TooManyRowsError):
            return Run(source, request, events).audit()
        spark.catalog.clearCache()
        return Run(source, request, lambda _: _InSpark(request.progress, spark, uri)).audit()

    try:
        yield source.isolating(attempt)
    finally:
        spark.catalog.clearCache()
        request.work.clear(folder)


class _TooManyRowsError(Exception):
    """An archive of few bytes has more rows than one process judges."""


class Run:
    """One audit, from the listing of the archive on.

    `events` returns what judges the events of an archive of some bytes, of which every folder counts.
    """

    def __init__(
        self, source: Archive | PlainArchive, request: Request, events: Callable[[int], InProcess | _InSpark]
    ) -> None:
        self._source = source
        self._request = request
        self._events = events
        self._parts: dict[str, Part] = {}

    def audit(self) -> Audit:
        """Make it. What Spark reads may turn out to be damaged: then all of it is made again."""
        objects, window, watermark = self._request.objects, self._request.window, self._request.watermark
        if not any(
            objects.folders(f"{place}{each}") for place in ("", f"{PUBLISHED}/") for each in (TAP, LEDGER)
        ):
            raise NoArchiveError(objects.uri)
        self._request.progress(f"reading {objects.uri}")
        listings = {each: self._source.listed(each, window.folders, self._request.key) for each in _FOLDERS}
        events = self._events(sum(each.size for listing in listings.values() for each in listing.objects))
        ledger = events.ledger(self._read(listings[LEDGER_FOLDER]), window)
        handovers = events.handovers(self._read(listings[HANDOVERS_FOLDER]), window)
        decisions = events.decisions(ledger)
        contracts = archived(objects)
        # A single contract is in force all the time; else the ledger is asked.
        history, faults = load_history(objects, contracts, usages(decisions) if len(contracts) != 1 else [])
        tap = events.tap(partial(self._read, listings[TAP_FOLDER]), window, history)
        chain = self._chain([contracts[each.version] for each in history.contracts])
        seen = ledger_hours(decisions, history.uplinks, history.webhooks)
        unreadable = unreadable_hours(events.nameless(tap, handovers))
        self._parts = with_altered(self._parts, chain.removed())
        damaged = damaged_hours(self._parts, seen, unreadable, chain.removed())
        redacted = chain.attested.erased_hours(TAP)
        missing = missing_rows(self._parts)
        rules: Rules | None = Rules(history, watermark, window, damaged, redacted, missing)
        dead_letters, inboxes = events.dead_letters(), ordered_inboxes(history)
        given_up = letters_of_readers(events.letters_of_readers())
        while rules is not None:
            judged = events.judged(Task(rules, dead_letters, inboxes, given_up=given_up))
            rules = rules.within_rows(judged.judgement.counts)
        self._request.progress("judging the devices")
        registry, lists = read_registry(objects, window, self._request.fleet)
        fleet = self._fleet(tap, history, judged, events, damaged, registry)
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
            found=events.found,
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
            engine=events.engine,
        )

    def _read(self, listing: Listing, **attributes: Collection[str]) -> Part:
        part = self._parts[listing.folder.name] = self._source.read(listing, **attributes)
        return part

    def _chain(self, contracts: Sequence[Stored]) -> Chain:
        """Return the digests of what is judged, beside those of the audits before."""
        return chain_of(
            self._request.objects,
            self._request.key,
            History(self._request.output, str(self._request.window)),
            self._parts,
            self._request.window.folders,
            contracts,
            min(self._request.watermark.as_of_ms, self._request.now_ms()),
        )

    def _fleet(
        self,
        tap: Any,
        history: ContractHistory,
        judged: Judged,
        events: InProcess | _InSpark,
        damaged: Mapping[str, frozenset[Hour]],
        registry: Registry | None,
    ) -> Fleet:
        """Judge the devices, of which those in the `registry` are expected."""
        window, judgement = self._request.window, judged.judgement
        fleet = judge_fleet(
            events.device_hours(tap, history.contracts),
            Scope(
                frozenset(history.uplinks),
                self._request.watermark.ms,
                history.homes,
                1_000 * self._request.watermark.lateness_s,
                end_ms=window.span_ms[1] + 1 if window.day else None,
                gone=gone_hours(damaged, self._parts[TAP]),
                damaged=frozenset(each.number for each in damaged.get(TAP, ())),
            ),
            not_in_tap=events.found[NotInTap],
            counts={key: n for key, n in judgement.counts.items() if isinstance(key, HourCount)},
            registry=registry.rows if registry else None,
            absent=absent_hours(self._parts[TAP]),
            held=hours_of_gone(self._parts[TAP]),
            is_small=isinstance(events, InProcess),
        )
        of_events, of_devices = events.found[Finding], fleet.found
        if isinstance(of_events, RDD) and isinstance(of_devices, RDD):
            events.found[Finding] = of_events.union(of_devices)
        elif isinstance(of_events, list) and isinstance(of_devices, list):
            of_events += of_devices
        # The tap has a hole where they would be: they are not unexplained.
        for (day, route, destination), count in fleet.recovered.items():
            where = day, route, destination
            judgement.counts[RouteCount(Verdict.UNEXPLAINED, *where)] -= count
            judgement.counts[RouteCount(Verdict.UNRECORDED, *where)] += count
        return fleet


class _Tables(ABC):
    """The rows to be judged, made by Spark of what it has read."""

    engine: ClassVar[str] = SPARK

    def __init__(self, progress: Callable[[str], None]) -> None:
        self.found: Found = {}
        self._progress = progress

    @abstractmethod
    def table(self, name: str, part: Part, make: _Make) -> DataFrame:
        """Return the rows of a folder that `make` gives."""

    def ledger(self, part: Part, window: Window) -> Any:
        """Return the ledger's rows."""
        return self.table(LEDGER, part, partial(rows.ledger_rows, window=window))

    def handovers(self, part: Part, window: Window) -> Any:
        """Return the handovers of events."""
        return self.table(HANDOVERS, part, partial(rows.handover_rows, window=window))

    def tap(self, read: Callable[..., Part], window: Window, history: ContractHistory) -> Any:
        """Return the tap's rows, with the routes that each event takes by the contracts of `history`."""
        texts, typed = attributes_of(filters_of(history))
        texts |= frozenset(rows.READ_ATTRIBUTES)
        part = read(texts=texts, integers=typed, booleans=typed)
        attributes = AttributeColumns.read(texts, typed)
        routes, at_home = expected_routes(history, attributes), due_at_home(history, attributes)
        make = partial(rows.tap_rows, window=window, routes=routes, due_at_home=at_home)
        return self.table(TAP, part, make)

    def device_hours(self, tap: Any, contracts: Sequence[Contract]) -> Any:
        """Return what each client sent in an epoch and an hour."""
        return device_hours(rows.good(tap), contracts)


class InProcess(_Tables):
    """The events of a small archive, judged in this process. Raises `_TooManyRowsError`."""

    def __init__(self, progress: Callable[[str], None]) -> None:
        super().__init__(progress)
        self._rows: list[tuple[Any, ...]] = []
        self._ledger: list[LedgerRow] = []

    def table(self, name: str, part: Part, make: _Make) -> DataFrame:
        """Return the rows of a folder that `make` gives."""
        made = make(part.rows)
        # The devices read it again.
        return made.persist() if name == TAP else made

    def decisions(self, ledger: Any) -> list[LedgerRow]:
        """Return rows that name every contract, time, channel and hour in the ledger."""
        self._take(ledger, rows.of_ledger, "ledger")
        self._ledger = _named(self._rows, "ledger")
        return self._ledger

    def dead_letters(self) -> frozenset[str]:
        """Return the ids of the dead letters of the plane's own that somebody received."""
        return received_dead_letters(self._ledger)

    def letters_of_readers(self) -> Iterable[LedgerRow]:
        """Return the ledger's rows among which those of readers' dead letters are."""
        return self._ledger

    def nameless(self, tap: Any, handovers: Any) -> list[BadRow]:
        """Return rows that cannot be judged, at least one of each archive and hour that names no event."""
        self._take(tap, rows.of_tap, "tap", "item")
        self._take(handovers, rows.of_handovers, "handover")
        return _named(self._rows, "bad")

    def judged(self, task: Task) -> Judged:
        """Return what all events come to."""
        self._progress(f"judging {len(self._rows):,} rows")
        self._rows.sort(key=itemgetter(0, 1))
        made = list(judge_rows(task, self._rows))
        self.found = {kind: [each for each in made if isinstance(each, kind)] for kind in FOUND}
        (judged,) = (each for each in made if isinstance(each, Judged))
        return judged

    def _take(self, table: Any, shape: Callable[[DataFrame], DataFrame], *names: str) -> None:
        left = SMALL_ROWS - len(self._rows)
        found = shape(table).limit(left + 1).collect()
        if len(found) > left:
            raise _TooManyRowsError
        self._rows += _padded(found, *names)


class _InSpark(_Tables):
    """The events of a large archive, judged by Spark: the ordinary ones counted, the others one by one.

    Tables are kept beneath `uri`. What is held in this process does not grow with the number of events.
    """

    def __init__(self, progress: Callable[[str], None], spark: SparkSession, uri: str) -> None:
        super().__init__(progress)
        self._spark = spark
        self._uri = uri
        self._tables: dict[str, DataFrame] = {}
        self._by_key: dict[str, Callable[[DataFrame], DataFrame]] = {}
        self._screen: Screened | None = None

    def table(self, name: str, part: Part, make: _Make) -> DataFrame:
        """Return the rows of a folder that `make` gives.

        Those that were made of many lines are settled: each reading of these would parse them again.
        """
        raw = sum(each.size for each in part.objects if not each.name.startswith(f"{COMPACTED}/"))
        table, self._by_key[name] = make(part.rows), lambda keys: make(part.rows, keys=keys)
        if raw > SMALL_BYTES:
            self._progress(f"settling {name}")
            table = self._settled(name, table)
            self._by_key[name] = lambda keys: table.join(keys, [*rows.KEY], "left_semi")
        self._tables[name] = table
        return table

    def decisions(self, ledger: DataFrame) -> list[LedgerRow]:
        """Return rows that name every contract, time, channel and hour in the ledger."""
        return list(map(LedgerRow._make, rows.summary(ledger).collect()))

    def dead_letters(self) -> frozenset[str]:
        """Return the ids of the dead letters of the plane's own that somebody received."""
        return frozenset(row.id for row in rows.dead_letters(self._tables[LEDGER]).collect())

    def letters_of_readers(self) -> Iterable[LedgerRow]:
        """Return the ledger's rows of readers' dead letters."""
        return map(LedgerRow._make, rows.letters_of_readers(self._tables[LEDGER]).collect())

    def nameless(self, tap: DataFrame, handovers: DataFrame) -> list[BadRow]:
        """Return a row of each archive and hour of those that cannot be judged and name no event."""
        tables = rows.of_tap(tap), rows.of_ledger(self._tables[LEDGER]), rows.of_handovers(handovers)
        bad = reduce(DataFrame.union, (each.where("bad is not null").select("bad.*") for each in tables))
        hour = sf.substring_index("file", "/", 3)
        found = bad.where("source is null or id is null").withColumn("hour", hour)
        found = found.dropDuplicates(["archive", "hour"]).select(*BadRow._fields)
        return list(map(BadRow._make, found.collect()))

    def judged(self, task: Task) -> Judged:
        """Return what all events come to."""
        self.found = {}
        # Holes change no shape: judged by fewer of them, the events are not screened again.
        screen = self._screen = self._screen or self._screened(task)
        self._progress(f"judging {screen.suspects:,} events")
        samples = frozenset(each.sample for each in screen.common.values())
        first = replace(task, samples=samples, overtaken=screen.overtaken, counted=screen.counted())
        number = screen.suspects + len(samples) + len(screen.overtaken)
        judged, found = self._judged(first, screen.first_keys(), number)
        if others := screen.add(judged, found):
            number = sum(screen.common[each].count for each in others)
            again, _ = self._judged(replace(task, overtaken={}), screen.keys_of(others), number)
            judged.add(again)
        return judged

    def _screened(self, task: Task) -> Screened:
        self._progress("screening")
        rules, inboxes = task.rules, task.inboxes
        tap, ledger, handovers = (self._tables[name] for name in (TAP, LEDGER, HANDOVERS))
        made = screened(tap, ledger, handovers, rules.history, rules.watermark, inboxes, task.given_up)
        return Screened.of(self._settled("events", made), inboxes)

    def _judged(self, task: Task, keys: DataFrame, number: int) -> tuple[Judged, dict[Key, Judged]]:
        """Judge the groups with these keys, in Python processes of the executors."""
        wanted = sf.broadcast(keys) if number <= MAX_BROADCAST else keys
        parts = (
            rows.of_tap(self._by_key[TAP](wanted)),
            rows.of_ledger(self._by_key[LEDGER](wanted)),
            rows.of_handovers(self._by_key[HANDOVERS](wanted)),
        )
        union = reduce(lambda one, two: one.unionByName(two, allowMissingColumns=True), parts)
        grouped = union.select(*rows.GROUPED).repartition(*rows.KEY).sortWithinPartitions(*rows.KEY)
        # Kept in files: there may be more than the driver can hold, and judging costs more than reading.
        uri = f"{self._uri}/{system.new_id()}"
        grouped.rdd.mapPartitions(partial(judge_rows, task)).saveAsPickleFile(uri)
        made = self._spark.sparkContext.pickleFile(uri)
        for kind in FOUND:
            before, rdd = self.found.get(kind), made.filter(partial(_is_a, kind))
            self.found[kind] = before.union(rdd) if isinstance(before, RDD) else rdd
        # Every partition counts for all devices and hours: few of them come to the driver.
        tasks = 2 * self._spark.sparkContext.defaultParallelism
        judged, samples = Judged(), dict[Key, Judged]()
        for each in made.coalesce(tasks).mapPartitions(_summed).collect():
            if isinstance(each, Sample):
                samples[each.key] = each.judged
            else:
                judged.add(each)
        return judged, samples

    def _settled(self, name: str, table: DataFrame) -> DataFrame:
        uri = f"{self._uri}/{name}"
        # Few values come again; looking for those costs more than writing them.
        table.write.option("parquet.enable.dictionary", "false").parquet(uri)
        return self._spark.read.schema(table.schema).parquet(uri)


def _summed(made: Iterable[object]) -> Iterator[Sample | Judged]:
    """Yield the samples among what was judged, and at the end the sum of all that was counted."""
    judged = Judged()
    for each in made:
        if isinstance(each, Sample):
            yield each
        elif isinstance(each, Judged):
            judged.add(each)
    yield judged


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
    return [rows.STRUCTS[name]._make(row[place]) for row in found if row[place] is not None]
