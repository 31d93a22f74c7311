"""The audit of a large archive by Spark: its events are screened, the others judged one by one.

Each table is parsed once and settled as Parquet beneath `work`, as are the results of screen and judges; the
rows of devices are kept by the executors. What this process holds does not grow with the number of events.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from pyspark import RDD, Broadcast, StorageLevel
from pyspark.serializers import CPickleSerializer
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import BinaryType, StructField, StructType

from eventplane.archive_layout import FLEET_FOLDER, Folder
from eventplane.ledger import HANDOVERS, LEDGER, TAP
from eventplane.names import FOLLOWED_CONTRACT
from glue_jobs.common import system
from glue_jobs.common.archive import Archive, struct_of
from glue_jobs.common.attestation import AttestationKey
from glue_jobs.common.hours import Days
from glue_jobs.common.listing import Listing
from glue_jobs.common.session import size_shuffles
from glue_jobs.delivery_audit import rows
from glue_jobs.delivery_audit.audit import FOUND, SPARK, Audit, AuditRequest, Read, audit, plain
from glue_jobs.delivery_audit.claims import HourRow, SenderEvents, judged_with, readers_of
from glue_jobs.delivery_audit.completeness import Scope
from glue_jobs.delivery_audit.device import DeviceRows
from glue_jobs.delivery_audit.devices import Counts, Fleet, Listed, judge_devices, summary
from glue_jobs.delivery_audit.event_group import HOUR_MS, LedgerRow, NotInTap
from glue_jobs.delivery_audit.expect import looked_at, routed
from glue_jobs.delivery_audit.judging import KINDS, Judged, Key, Sample, Task, judge_rows
from glue_jobs.delivery_audit.number_ranges import EVENT_BYTES
from glue_jobs.delivery_audit.rules import Rules
from glue_jobs.delivery_audit.screen import Screened, screened

_SUM: Final = "sum"
SCHEMA: Final = StructType(
    [
        *(StructField(kind, struct_of(columns)) for kind, columns in FOUND.items()),
        StructField(_SUM, BinaryType()),
    ]
)
"""A row has one of these: what was found, or what a partition comes to, pickled."""

_ROUTES: Final = "routed_by string, routes array<string>, due_at_home string"


def found_row(kind: str, found: Any) -> tuple[Any, ...]:
    """Return what was found, or (kind `sum`) an object, as a row of `SCHEMA`."""
    if kind == _SUM:
        value: Any = CPickleSerializer().dumps(found)
    else:
        value = tuple(map(plain, found))
    return tuple(value if name == kind else None for name in SCHEMA.names)


@dataclass(frozen=True, slots=True)
class FoundTable:
    """Rows of `SCHEMA`, kept."""

    table: DataFrame

    def sums(self) -> Iterator[Any]:
        """Yield what the partitions come to."""
        for row in self.table.select(_SUM).where(sf.col(_SUM).isNotNull()).collect():
            yield CPickleSerializer().loads(row[0])

    def __getitem__(self, kind: str) -> DataFrame:
        """Return what was found of a kind."""
        return self.table.where(sf.col(kind).isNotNull()).select(f"{kind}.*")

    def __add__(self, other: FoundTable) -> FoundTable:
        return FoundTable(self.table.union(other.table))


@contextmanager
def audited(spark: SparkSession, request: AuditRequest) -> Iterator[Audit]:
    """Audit what the request asks for; some tables are kept beneath its `work` until the block ends.

    Raises what `audit.audit` raises.
    """
    source = Archive(spark, request.objects)
    folder = f"{request.window}/{system.new_id()}"

    def attempt() -> Audit:
        # Each has a folder of its own: one that met a damaged object leaves what it had settled.
        uri = f"{request.work.uri}/{folder}/{system.new_id()}"
        return audit(SparkEngine(source, request, SparkTables(spark, uri)), request)

    try:
        yield source.isolating(attempt)
    finally:
        request.work.clear(folder)


@dataclass(frozen=True, slots=True)
class SparkTables:
    """Tables that are kept beneath `uri` while an audit runs."""

    spark: SparkSession
    uri: str

    def settled(self, table: DataFrame) -> DataFrame:
        """Return the rows of a table, worked out once."""
        uri = f"{self.uri}/{system.new_id()}"
        # Few values come again; looking for those costs more than writing them.
        table.write.option("parquet.enable.dictionary", "false").parquet(uri)
        return self.spark.read.schema(table.schema).parquet(uri)

    def observed(self, table: DataFrame, **facts: Column) -> tuple[DataFrame, Mapping[str, list[Any]]]:
        """Return the rows of a table, worked out once, with lists that are collected of them meanwhile."""
        seen, lists = Observation(), sf.struct(*(each.alias(name) for name, each in facts.items()))
        settled = self.settled(table.observe(seen, sf.to_json(lists).alias("lists")))
        return settled, json.loads(seen.get["lists"])

    def found(self, made: RDD[Any]) -> FoundTable:
        """Keep what the executors find."""
        return FoundTable(self.settled(self.spark.createDataFrame(made, SCHEMA, verifySchema=False)))


class SparkEngine:
    """Reads the archive in `source` by Spark."""

    name = SPARK

    def __init__(self, source: Archive, request: AuditRequest, tables: SparkTables) -> None:
        self._source = source
        self._request = request
        self._tables = tables
        self.spark = tables.spark

    def listed(self, folder: Folder, days: Days, key: AttestationKey) -> Listing:
        """List what a folder holds of some days."""
        return self._source.listed(folder, days, key)

    def read(self, listings: Mapping[str, Listing], history_of: Callable[..., Any]) -> Read:
        """Read all folders; `history_of` takes `Read.decisions`, and returns `Read.history` and `faults`."""
        size_shuffles(self.spark, sum(each.size for listing in listings.values() for each in listing.objects))
        window = self._request.window
        decided, ended = (self._source.read(listings[each]) for each in (LEDGER, HANDOVERS))
        ledger, facts = self._tables.observed(
            rows.ledger_rows(decided.rows, window),
            nameless=rows.nameless_hours(LEDGER),
            dead_letters=rows.dead_letters(),
            letters=rows.letters_of_readers(),
        )
        handovers, of_handovers = self._tables.observed(
            rows.handover_rows(ended.rows, window), nameless=rows.nameless_hours(HANDOVERS)
        )
        decisions = [LedgerRow(**row.asDict()) for row in rows.summary(ledger).collect()]
        history, faults = history_of(decisions)
        names, typed = looked_at(history)
        is_listed = self._request.is_listed
        is_rolled_out = bool(history.candidacies)
        texts = names.union(rows.READ_ATTRIBUTES, ["time"] * is_listed, [FOLLOWED_CONTRACT] * is_rolled_out)
        tapped = self._source.read(listings[TAP], texts=texts, integers=typed, booleans=typed)
        tap, of_tap = self._tables.observed(
            rows.tap_rows(
                tapped.rows, window, names, typed, is_listed=is_listed, is_rolled_out=is_rolled_out
            ),
            nameless=rows.nameless_hours(TAP),
        )
        # Of a million events there are some hundred combinations, unless a filter looks at an id.
        values = tap.select("routed_by").distinct().rdd.mapPartitions(partial(routed, history))
        routes = self.spark.createDataFrame(values, _ROUTES, verifySchema=False)
        tap = tap.join(self._tables.settled(routes), "routed_by")
        observed, none = (
            {TAP: of_tap, LEDGER: facts, HANDOVERS: of_handovers},
            dict.fromkeys(LedgerRow._fields),
        )
        hours = rows.device_hours(tap.where(rows.is_event()), history.contracts)

        return Read(
            {LEDGER: decided, HANDOVERS: ended, TAP: tapped},
            decisions,
            history,
            faults,
            frozenset(facts["dead_letters"]),
            [LedgerRow(**{**none, **members}) for members in facts["letters"]],
            [(archive, each) for archive, lists in observed.items() for each in lists["nameless"]],
            partial(self._screened, tap, ledger, handovers),
            partial(self._devices, hours),
        )

    def _devices(
        self, hours: DataFrame, found: FoundTable, counts: Counts, registry: Listed | None
    ) -> SparkDevices:
        kept = self._tables.settled(hours.coalesce(_tasks(self.spark)))
        return SparkDevices(kept, self._tables.found, found, counts, registry)

    def _screened(
        self, tap: DataFrame, ledger: DataFrame, handovers: DataFrame, task: Task
    ) -> Callable[[Rules], tuple[Judged, FoundTable]]:
        self._request.progress("screening")
        rules, inboxes = task.rules, task.inboxes
        ids = [(each,) for each in task.given_up]
        given_up = self._tables.settled(self.spark.createDataFrame(ids, "letter string")) if ids else None
        made = screened(tap, ledger, handovers, rules.history, rules.watermark, inboxes, given_up)
        screen = Screened.of(self._tables.settled(made), inboxes)
        if rules.is_listed:
            # A shape says nothing of a single event.
            screen = replace(screen, common={}, counted=frozenset())
        return partial(self._judged, screen, rows.grouped(tap, ledger, handovers), task)

    def _judged(
        self, screen: Screened, grouped: DataFrame, task: Task, rules: Rules
    ) -> tuple[Judged, FoundTable]:
        """Judge what is suspect, and samples of what is not. Holes change no shape: it is screened once."""
        self._request.progress(f"judging {screen.suspects:,} events")
        samples = frozenset(each.sample for each in screen.common.values())
        first = replace(
            task, rules=rules, samples=samples, overtaken=screen.overtaken, counted=screen.counted
        )
        judged, by_sample, found = self._judge(first, grouped, screen.first_keys())
        if others := screen.add(judged, by_sample):
            number = sum(screen.common[each].count for each in others)
            self._request.progress(f"judging {number:,} events more, as their samples are not ordinary")
            again = replace(task, rules=rules, overtaken={})
            more, _, others_found = self._judge(again, grouped, screen.keys_of(others))
            judged.add(more)
            found += others_found
        return judged, found

    def _judge(
        self, task: Task, grouped: DataFrame, keys: DataFrame
    ) -> tuple[Judged, dict[Key, Judged], FoundTable]:
        """Judge the groups with these keys, in Python processes of the executors."""
        # Settled, so that Spark knows how many they are, and how to join them.
        wanted = grouped.join(self._tables.settled(keys), [*rows.KEY], "left_semi")
        tasks = _tasks(self.spark)
        in_order = wanted.repartition(tasks, *rows.KEY).sortWithinPartitions(*rows.KEY)
        kept = self._tables.found(in_order.rdd.mapPartitions(partial(_found_rows, task)))
        judged, samples = Judged(), dict[Key, Judged]()
        for each in kept.sums():
            if isinstance(each, Sample):
                samples[each.key] = each.judged
            else:
                judged.add(each)
        return judged, samples, kept


def _tasks(spark: SparkSession) -> int:
    """Return in how many tasks Python judges: few, as each has a sum of its own, and enough for all cores."""
    return 2 * spark.sparkContext.defaultParallelism


def _found_rows(task: Task, grouped: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    for each in judge_rows(task, grouped):
        yield found_row(KINDS.get(each.__class__, _SUM), each)


class SparkDevices:
    """The devices of a large archive: `hours` are `device_hours`, `keep` keeps what is found."""

    def __init__(
        self,
        hours: DataFrame,
        keep: Callable[[RDD[Any]], FoundTable],
        found: FoundTable,
        counts: Counts,
        registry: Listed | None,
    ) -> None:
        self._spark = hours.sparkSession
        self._hours = hours
        self._keep = keep
        self._found = found
        self._counts = self._spark.sparkContext.broadcast(counts)
        self._registry = registry
        self._rows: RDD[Any] | None = None

    def senders(self) -> Iterator[SenderEvents]:
        """Return who sent in which epoch."""
        senders = self._hours.groupBy("client_id", "epoch").agg(
            sf.max("is_vouched").alias("is_vouched"),
            sf.min("first.accepted_at_ms").alias("first_ms"),
            sf.sum(sf.floor(sf.length("events") / EVENT_BYTES)).alias("numbers"),
            sf.min("quickest.travel_ms").alias("least_ms"),
            sf.max("last_ms").alias("last_ms"),
        )
        return (SenderEvents(**row.asDict()) for row in senders.collect())

    def hours_not_in_tap(self) -> Collection[int]:
        """Return the hours, counted from 1970, of what the ledger alone has."""
        hours = self._found["not_in_tap"].select(sf.floor(sf.col("entered_at_ms") / HOUR_MS)).distinct()
        return {row[0] for row in hours.collect()}

    def judged(self, scope: Scope, absent: Collection[int]) -> tuple[Fleet, FoundTable]:
        """Judge each device, and return besides what was found of events and devices."""
        if self._rows is None:
            # Whose rows they are is known before the first judgement, and holes change nothing of it.
            self._rows = self._by_owner(scope).persist(StorageLevel.DISK_ONLY)
        kept = self._keep(self._rows.mapPartitions(partial(_made, self._counts, scope, absent)))
        fleet = Fleet()
        for each in kept.sums():
            fleet.add(each)
        return fleet.keep_worst(), self._found + kept

    def _by_owner(self, scope: Scope) -> RDD[Any]:
        """Bring together the rows that each device is judged by."""
        hours = self._hours.withColumn("owner", sf.col("client_id"))
        if scope.owners:
            readers = readers_of(scope.owners)
            pairs = [
                (epoch, client, owner)
                for epoch, client in self._hours.where(sf.col("epoch").isin([*scope.owners]))
                .select("epoch", "client_id")
                .distinct()
                .collect()
                for owner in judged_with(client, scope.owners[epoch], readers[epoch])
            ]
            shared = self._spark.createDataFrame(pairs, "epoch string, client_id string, shared_by string")
            hours = self._hours.join(shared, ["epoch", "client_id"], "left")
            hours = hours.withColumn("owner", sf.coalesce("shared_by", "client_id"))
        stray = self._found["not_in_tap"].select(
            sf.coalesce("client_id", sf.lit("")).alias("owner"), sf.struct(*NotInTap._fields).alias("stray")
        )
        rows = hours.select("owner", sf.struct(*HourRow._fields).alias("hour"))
        rows = rows.unionByName(stray, allowMissingColumns=True)
        schema = struct_of(FLEET_FOLDER.columns)
        listed = self._spark.createDataFrame(self._registry or [], schema, verifySchema=False)
        listed = listed.withColumnRenamed("thing", "owner")
        rows = rows.unionByName(listed, allowMissingColumns=True)
        # Sorted and not gathered into lists: of a device with most of all events one hour at a time is held.
        return rows.repartition(_tasks(self._spark), "owner").sortWithinPartitions("owner").rdd


def _made(
    counts: Broadcast[Counts], scope: Scope, absent: Collection[int], rows: Iterable[Any]
) -> Iterator[tuple[Any, ...]]:
    """Judge devices by sorted rows, and yield the rows of a `FoundTable`."""
    fleet = Fleet()
    for each in judge_devices(_gathered(rows, counts.value), scope, absent):
        yield from (found_row("finding", finding) for finding in each.findings)
        yield from (found_row("day", day) for day in each.days)
        yield from (found_row("delivery", row) for row in each.deliveries)
        fleet.add(summary([each]))
    yield found_row(_SUM, fleet)


def _gathered(rows: Iterable[Any], counts: Counts) -> Iterator[DeviceRows]:
    """Bring together the rows of each device, by which they are sorted."""
    for owner, those in groupby(rows, attrgetter("owner")):
        hours, strays, state, since_ms = list[HourRow](), list[NotInTap](), None, None
        for row in those:
            if row.hour is not None:
                hours.append(HourRow._make(row.hour))
            elif row.stray is not None:
                strays.append(NotInTap._make(row.stray))
            else:
                state, since_ms = row.state, row.since_ms
        yield DeviceRows(owner, hours, strays, counts.get(owner, ()), state, since_ms)
