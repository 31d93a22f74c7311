"""What each device sent and stated, gathered by Spark and judged, and the list of the expected devices."""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import Any, Final

from pyspark import RDD, StorageLevel
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from eventplane.archive_layout import FLEET_FOLDER, Column
from eventplane.contract import Contract, DeliveryGuarantee, Place
from eventplane.device_record import FLEET
from eventplane.names import CANARY_CLIENTS, ERASED
from eventplane.sender import PLANE_CLIENT
from eventplane.values import whole_number
from glue_jobs.common.archive import columns_of, struct_of
from glue_jobs.common.hours import day_of_folder, hour_of
from glue_jobs.common.listing import ObjectFault
from glue_jobs.common.objects import Objects
from glue_jobs.common.session import local_rows
from glue_jobs.delivery_audit.claims import HourRow, Sender, judged_with, owners_of, readers_of
from glue_jobs.delivery_audit.completeness import Scope
from glue_jobs.delivery_audit.coverage import RESTS, Coverage, Standing
from glue_jobs.delivery_audit.device import (
    COUNTS,
    DeviceJudgement,
    DeviceRows,
    judge_device,
    usual_ms,
)
from glue_jobs.delivery_audit.device_reports import EVENT_BYTES
from glue_jobs.delivery_audit.errors import FleetListError
from glue_jobs.delivery_audit.event_group import HOUR_MS, HourCount, NotInTap
from glue_jobs.delivery_audit.findings import Finding, worst_first
from glue_jobs.delivery_audit.home import HOME
from glue_jobs.delivery_audit.judging import MAX_FINDINGS
from glue_jobs.delivery_audit.rows import is_own_report
from glue_jobs.delivery_audit.rules import LAST_MS, Window

MAX_DEVICES: Final = 1_000
"""Most devices in the report, those with most losses first; all of them are in the table."""

MAX_HOURLY: Final = 200
"""Most devices whose hours are in the report, the worst of those shown. Ours: what a picture can show."""

LEAST_SILENT: Final = 2
"""Fewest devices that must miss something in an hour without a tap object for the hour to be a hole of the
archive. Ours: one device alone may have lost what it misses."""

_Counts = Mapping[str, list[tuple[str, int, int]]]

Listed = Sequence[tuple[str, str, int | None]]
"""Devices of the fleet's registry: thing, state, and since when, Unix milliseconds."""

_STANDINGS: Final = (Standing.SILENT, Standing.PARTLY, Standing.UNREGISTERED, Standing.ATTESTED, None)

_GZIP = b"\x1f\x8b"


@dataclass(slots=True)
class Fleet:
    """What was found out about all devices.

    `found` are all findings, in this process or in Spark; `findings` are the worst of them, `kinds` counts
    them by kind and hop. `totals` are sums of `COUNTS` and the number of `devices`. `worst` are rows of
    `DEVICE`, `hours` those of the worst by hour. `holes` counts events without a record in the tap by hour
    (counted from 1970), `recovered` those of them that the ledger has, by day, route and destination. `homes`
    counts events by inbox on devices and `HOME`. `days` is the table.
    """

    totals: Counter[str] = field(default_factory=Counter)
    standings: Counter[str] = field(default_factory=Counter)
    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    found: list[Finding] | RDD[Finding] = field(default_factory=list)
    worst: list[dict[str, Any]] = field(default_factory=list)
    hours: list[dict[str, Any]] = field(default_factory=list)
    holes: Counter[int] = field(default_factory=Counter)
    recovered: Counter[tuple[str, str, str | None]] = field(default_factory=Counter)
    silences: Counter[tuple[int, bool]] = field(default_factory=Counter)
    homes: Counter[tuple[str, str]] = field(default_factory=Counter)
    days: list[Any] | RDD[Any] = field(default_factory=list)

    def coverage(self, fleet: str | None, cloud_events: int) -> Coverage:
        """Return on what the proof rests; `fleet` names the list of expected devices."""
        return Coverage(
            events={name: self.totals[name] for name in RESTS},
            awaiting=self.totals["awaiting"],
            best_effort=self.totals["best_effort"],
            devices={name: self.standings[name] for name in ("expected", *map(str, Standing))},
            fleet=fleet,
            cloud_events=cloud_events,
            home={name: self.totals[f"home_{name}"] for name in HOME},
        )

    def add(self, other: Fleet) -> Fleet:
        """Add what is in `other`, and keep the worst of both."""
        for name in ("totals", "standings", "kinds", "holes", "recovered", "silences", "homes"):
            getattr(self, name).update(getattr(other, name))
        for name in ("findings", "worst", "hours"):
            getattr(self, name).extend(getattr(other, name))
        if len(self.worst) > 2 * MAX_DEVICES or len(self.findings) > 2 * MAX_FINDINGS:
            self.keep_worst()
        return self

    def keep_worst(self) -> Fleet:
        """Forget the devices and findings that are not shown."""
        self.findings = nsmallest(MAX_FINDINGS, self.findings, key=worst_first)
        self.worst = nsmallest(MAX_DEVICES, self.worst, key=_order)
        hourly = {*[*dict.fromkeys(row["client_id"] for row in self.worst)][:MAX_HOURLY]}
        hours = (row for row in self.hours if row["client_id"] in hourly)
        self.hours = sorted(hours, key=lambda row: (row["client_id"], row["from_ms"]))
        return self


def judge_fleet(
    hours: DataFrame | Sequence[Any],
    scope: Scope,
    *,
    not_in_tap: Sequence[NotInTap] | RDD[NotInTap] = (),
    counts: Mapping[HourCount, int] | None = None,
    registry: Listed | None = None,
    absent: Collection[int] = (),
    held: Mapping[int, int] | None = None,
    is_small: bool = False,
) -> Fleet:
    """Judge every device.

    `hours` has the rows of `device_hours`, `registry` the newest list of devices. `counts` are those of the
    router's hop. `absent` are hours, counted from 1970, between the first and the last of the tap's objects
    that have none (`absent_hours`);
    `scope.gone` are those in which the ledger has events of devices (`gone_hours`). Of the hours `held` it is
    known how many rows gone objects of the tap had: they explain no hour that misses more. A small archive is
    judged in the driver.
    """
    gathered = _Gathered(hours, not_in_tap, _by_client(counts or {}), registry)
    devices = _InDriver(gathered) if is_small else _InSpark(gathered)
    # Records may lie in the hour behind; then nothing is missing.
    gone = scope.gone & _hours(not_in_tap) if scope.gone else scope.gone
    scope = _of_fleet(replace(scope, gone=gone, has_fleet=registry is not None), devices.senders())
    fleet = devices.judged(scope, absent)
    silences = fleet.silences
    gone |= {at for at in absent if silences[at, True] >= max(LEAST_SILENT, silences[at, False] + 1)}
    if held:
        missing = devices.judged(replace(scope, gone=gone | {*held}), ()).holes
        gone |= {hour for hour, rows in held.items() if missing[hour] <= rows}
    if gone > scope.gone:
        fleet = devices.judged(replace(scope, gone=gone), ())
    return fleet


def device_hours(tap: DataFrame, contracts: Sequence[Contract]) -> DataFrame:
    """Return a row for each client, epoch and hour of acceptance, in the window and beside it: `HourRow`.

    What no device sent is left out. `is_vouched` is whether a report of the device itself came with it, or
    an erasure took that away.
    """
    sent = tap.where(~sf.col("client_id").isin(PLANE_CLIENT, *CANARY_CLIENTS))
    is_numbered = sf.col("epoch").isNotNull() & sf.col("sequence").isNotNull()
    service = sf.coalesce("service", sf.lit(""))
    # As `eventplane.device_reports.key_digest`, of which 64 bits fit into a column.
    key = sf.sha2(sf.concat_ws("\n", service, "source", "id"), 256)
    by_rule = sf.substring(key, 17, 16), sf.col("digest")
    digests = [sf.coalesce(sf.conv(each, 16, -10).cast("bigint"), sf.lit(0)) for each in by_rule]
    other = sf.col("within") & ~is_numbered
    # One of the two is there: the other cannot be read.
    is_unread = sf.col("epoch").isNotNull() != sf.col("sequence").isNotNull()
    best_effort = _is_best_effort(contracts)
    other_key = sf.when(other & ~best_effort, digests[0])
    travel = sf.when(sf.col("within"), sf.col("accepted_at_ms") - sf.col("recorded_at_ms"))
    quickest = sf.when(travel.isNotNull(), sf.struct(travel, "accepted_at_ms", "file"))
    is_report = sf.col("report").isNotNull()
    is_erased = sf.col("client_id").startswith(ERASED)
    is_due = is_numbered & (sf.col("due_at_home") != "") & ~best_effort
    report = ("accepted_at_ms", "file", "type", "source", "id", "epoch", "sequence", "report")
    return (
        sent.withColumn("is_numbered", is_numbered)
        .groupBy(
            "client_id",
            sf.when(is_numbered, sf.col("epoch")).alias("epoch"),
            sf.floor(sf.col("accepted_at_ms") / HOUR_MS).alias("hour"),
            "within",
        )
        .agg(
            _packed(sf.collect_list(sf.when(is_numbered, _digits("sequence", *digests)))).alias("events"),
            _packed(sf.collect_set(_digits(other_key, *[sf.lit(0)] * len(digests)))).alias("others"),
            sf.count_if(other & best_effort).alias("best_effort"),
            sf.collect_set(sf.when(is_unread, sf.struct("epoch", *digests))).alias("unread"),
            sf.min(sf.struct("accepted_at_ms", "file")).alias("first"),
            sf.min(quickest).alias("quickest"),
            sf.count(travel).alias("samples"),
            sf.collect_list(sf.when(is_report, sf.struct(*report))).alias("reports"),
            sf.collect_list(sf.when(is_due, sf.struct("sequence", "due_at_home"))).alias("due"),
            sf.max("accepted_at_ms").alias("last_ms"),
            sf.coalesce(sf.max(is_erased | (is_report & is_own_report())), sf.lit(False)).alias("is_vouched"),
        )
    )


def _digits(*words: SparkColumn | str) -> SparkColumn:
    """Return 16 hexadecimal digits for each word of 64 bits; null where one is null."""
    return sf.concat(*(sf.lpad(sf.hex(each), 16, "0") for each in words))


def _packed(events: SparkColumn) -> SparkColumn:
    """Return events, each as its `_digits`, as `device_reports.pack_events` packs them."""
    return sf.unhex(sf.concat_ws("", sf.array_sort(events)))


def best_effort_names(contracts: Sequence[Contract]) -> tuple[bool, set[str], set[str]]:
    """Return of what a device need not store every event: of all, of which services, of which types.

    Where a route of the device declares it, its filter decided: what has no number is believed to be such.
    """
    services, types, is_any = set[str](), set[str](), False
    for contract in contracts:
        uplink = contract.device.outbox
        leading = [each for each in contract.routes_at(Place.DEVICE) if each.destination == uplink.address]
        is_any |= any(
            DeliveryGuarantee.BEST_EFFORT in (each.delivery_guarantee, uplink.delivery_guarantee)
            for each in leading
        )
        services |= {
            name
            for name, each in contract.participants.items()
            if any(channel.delivery_guarantee is DeliveryGuarantee.BEST_EFFORT for channel in each.channels)
        }
        types |= {
            each.name
            for each in contract.event_types.values()
            if each.delivery_guarantee is DeliveryGuarantee.BEST_EFFORT
        }
    return is_any, services, types


def _is_best_effort(contracts: Sequence[Contract]) -> SparkColumn:
    """Return whether a device need not have stored the event, and so has not numbered it."""
    is_any, services, types = best_effort_names(contracts)
    if is_any:
        return sf.lit(True)
    by_contract = sf.col("service").isin(*services) | sf.col("type").isin(*types)
    return sf.coalesce(sf.col("asks_best_effort") | by_contract, sf.lit(False))


def _by_client(counts: Mapping[HourCount, int]) -> _Counts:
    found: dict[str, list[tuple[str, int, int]]] = defaultdict(list)
    for key, count in counts.items():
        found[key.client_id].append((key.measure, key.hour, count))
    return found


def _hours(not_in_tap: Sequence[NotInTap] | RDD[NotInTap]) -> set[int]:
    if isinstance(not_in_tap, RDD):
        return set(not_in_tap.map(_hour).distinct().collect())
    return set(map(_hour, not_in_tap))


def _hour(row: NotInTap) -> int:
    return row.entered_at_ms // HOUR_MS


@dataclass(frozen=True, slots=True)
class _Gathered:
    """What there is of all devices: `hours` has the rows of `device_hours`, `counts` are by client."""

    hours: Any
    not_in_tap: Sequence[NotInTap] | RDD[NotInTap]
    counts: _Counts
    registry: Listed | None


def _of_fleet(scope: Scope, senders: Iterable[Sender]) -> Scope:
    """Return the scope with what all devices together say: owners of epochs, usual and last times."""
    known = list(senders)
    quickest: dict[str, int] = {}
    for each in known:
        if each.least_ms is not None:
            quickest[each.client_id] = min(each.least_ms, quickest.get(each.client_id, each.least_ms))
    usual = usual_ms(median(quickest.values()) if quickest else None)
    last_ms = max((each.last_ms for each in known), default=None)
    return replace(scope, owners=owners_of(known), usual_ms=usual, last_ms=last_ms)


class _InDriver:
    """The devices of a small archive, judged in the driver."""

    def __init__(self, gathered: _Gathered) -> None:
        self._gathered = gathered
        hours = gathered.hours
        self._rows = hours.collect() if isinstance(hours, DataFrame) else hours
        self._hours = [HourRow(*row[: len(HourRow._fields)]) for row in self._rows]
        strays = gathered.not_in_tap
        self._strays = strays.collect() if isinstance(strays, RDD) else strays

    def senders(self) -> Iterator[Sender]:
        for each, row in zip(self._hours, self._rows, strict=True):
            least_ms = each.quickest[0] if each.quickest else None
            numbers = len(each.events) // EVENT_BYTES
            last_ms, is_vouched = row[-2:]
            first_ms = each.first[0]
            yield Sender(each.client_id, each.epoch, is_vouched, first_ms, numbers, least_ms, last_ms)

    def judged(self, scope: Scope, absent: Collection[int]) -> Fleet:
        found: defaultdict[str, tuple[list[HourRow], list[NotInTap]]] = defaultdict(lambda: ([], []))
        readers = readers_of(scope.owners)
        for hour in self._hours:
            epoch = hour.epoch or ""
            for owner in judged_with(hour.client_id, scope.owners.get(epoch, ()), readers.get(epoch, ())):
                found[owner][0].append(hour)
        for row in self._strays:
            found[row.client_id or ""][1].append(row)
        listed = {thing: state for thing, *state in self._gathered.registry or ()}
        rows = ((each, *found[each], *listed.get(each, (None, None))) for each in sorted({*found, *listed}))
        judgements = list(_judgements(rows, self._gathered.counts, scope, absent))
        fleet = _summary(judgements)
        fleet.found = [each for judgement in judgements for each in judgement.findings]
        fleet.days = [day for judgement in judgements for day in judgement.days]
        return fleet


class _InSpark:
    """The devices of a large archive, judged by Spark."""

    def __init__(self, gathered: _Gathered) -> None:
        hours: DataFrame = gathered.hours
        self._spark = hours.sparkSession
        # Two rounds of all cores: a device takes milliseconds, a task tens of them.
        self._tasks = 2 * self._spark.sparkContext.defaultParallelism
        self._hours = hours.coalesce(self._tasks).persist(StorageLevel.MEMORY_AND_DISK)
        self._registry = gathered.registry
        self._sent = set[tuple[str, str | None]]()
        """The clients, and in which epochs each sent."""
        self._counts = self._spark.sparkContext.broadcast(gathered.counts)
        rows, schema = gathered.not_in_tap, struct_of(columns_of(NotInTap))
        if isinstance(rows, RDD):
            self._strays = self._spark.createDataFrame(rows, schema, verifySchema=False)
        else:
            self._strays = local_rows(self._spark, rows, schema)

    def senders(self) -> Iterator[Sender]:
        found = self._hours.groupBy("client_id", "epoch").agg(
            sf.max("is_vouched"),
            sf.min("first.accepted_at_ms"),
            sf.sum(sf.floor(sf.length("events") / EVENT_BYTES)),
            sf.min("quickest.col1"),
            sf.max("last_ms"),
        )
        for each in map(Sender._make, found.collect()):
            self._sent.add((each.client_id, each.epoch))
            yield each

    def judged(self, scope: Scope, absent: Collection[int]) -> Fleet:
        counts = self._counts
        hours = self._hours.withColumn("owner", sf.col("client_id"))
        if scope.owners:
            readers = readers_of(scope.owners)
            pairs = [
                (epoch, client, owner)
                for client, epoch in self._sent
                if epoch is not None and epoch in scope.owners
                for owner in judged_with(client, scope.owners[epoch], readers[epoch])
            ]
            columns = struct_of((Column("epoch"), Column("client_id"), Column("shared_by")))
            shared = sf.broadcast(local_rows(self._spark, pairs, columns))
            hours = self._hours.join(shared, ["epoch", "client_id"], "left")
            hours = hours.withColumn("owner", sf.coalesce("shared_by", "client_id"))
        rows = hours.select(
            "owner",
            sf.struct(*HourRow._fields).alias("hour"),
            sf.lit(None).cast("string").alias("state"),
            sf.lit(None).cast("bigint").alias("since_ms"),
        )
        stray = self._strays.select(
            sf.coalesce("client_id", sf.lit("")).alias("owner"), sf.struct("*").alias("stray")
        )
        rows = rows.unionByName(stray, allowMissingColumns=True)
        if self._registry is not None:
            listed = local_rows(self._spark, self._registry, struct_of(FLEET_FOLDER.columns))
            rows = rows.unionByName(listed.withColumnRenamed("thing", "owner"), allowMissingColumns=True)
        # Sorted and not gathered into lists: of a device with most of all events one hour at a time is held.
        sorted_rows = rows.repartition(self._tasks, "owner").sortWithinPartitions("owner")
        judged = sorted_rows.rdd.mapPartitions(
            lambda each: _judgements(_gathered_rows(each), counts.value, scope, absent)
        )
        judged = judged.persist(StorageLevel.MEMORY_AND_DISK)
        fleet = judged.mapPartitions(lambda each: [_summary(each)]).fold(Fleet(), Fleet.add)
        fleet.found = judged.flatMap(lambda each: each.findings)
        fleet.days = judged.flatMap(lambda each: each.days)
        return fleet.keep_worst()


def _gathered_rows(rows: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a device together, which are sorted by it."""
    for owner, those in groupby(rows, itemgetter("owner")):
        hours: list[Any] = []
        strays: list[Any] = []
        state: str | None = None
        since_ms: int | None = None
        for row in those:
            hours += [row["hour"]] if row["hour"] else []
            strays += [row["stray"]] if row["stray"] else []
            if row["state"] is not None:
                state, since_ms = row["state"], row["since_ms"]
        yield owner, hours, strays, state, since_ms


def _judgements(
    rows: Iterable[Any], counts: _Counts, scope: Scope, absent: Collection[int]
) -> Iterator[DeviceJudgement]:
    """Judge devices by rows of name, hours, what the tap does not have, state and since when."""
    for owner, hours, strays, state, since_ms in rows:
        those = [HourRow(*row) for row in hours], [NotInTap(*row) for row in strays]
        device = DeviceRows(owner, *those, counts.get(owner, ()), state, since_ms)
        judged = judge_device(device, scope, absent)
        yield _of_others(judged) if owner.startswith(ERASED) else judged


def _of_others(judged: DeviceJudgement) -> DeviceJudgement:
    """Return the judgement of a device of which an erasure left what is needed to judge others."""
    findings = [each for each in judged.findings if each.device != judged.client_id]
    return judged._replace(
        standing=None, findings=findings, days=[], epochs=[], hours=[], silences=[], homes=Counter()
    )


def _summary(judgements: Iterable[DeviceJudgement]) -> Fleet:
    fleet = Fleet()
    for each in judgements:
        one = Fleet(findings=each.findings, holes=each.holes, recovered=each.recovered)
        one.kinds = Counter((found.kind, found.hop) for found in each.findings)
        one.silences, one.homes = Counter(each.silences), each.homes
        one.worst, one.hours = each.epochs, each.hours
        for row in one.worst:
            one.totals.update({name: row[name] for name in COUNTS})
        if each.standing is not None:
            one.totals["devices"] += 1
            one.standings[each.standing] += 1
        one.standings["expected"] += each.expected
        fleet.add(one)
    return fleet.keep_worst()


def _order(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Most losses first, then those of which least is known, then most gaps."""
    standing = _STANDINGS.index(row["coverage"])
    return -row["lost"], standing, -(row["gaps"] or 0), row["client_id"], row["epoch"] or ""


@dataclass(frozen=True, slots=True)
class Registry:
    """The devices in service: `rows` of thing, state and since when, Unix milliseconds.

    `name` is the object, or the file, that has the list.
    """

    name: str
    rows: list[tuple[str, str, int | None]]


def read_registry(
    objects: Objects, window: Window, file: str | None
) -> tuple[Registry | None, list[ObjectFault]]:
    """Return the list in `file`, else the archive's newest one by the end of the window; None without one.

    A list of the archive that cannot be read is a fault, and the next best one is taken. Raises
    `FleetListError` for `file`.
    """
    if file is not None:
        path = Path(file)
        if not path.is_file():
            raise FleetListError(file, "there is no such file")
        return Registry(file, list(_rows(file, path.read_bytes()))), []
    faults: list[ObjectFault] = []
    for name in _by_worth(objects, window):
        try:
            return Registry(name, list(_rows(name, objects.read(name) or b""))), faults
        except FleetListError as error:
            faults.append(ObjectFault("unreadable", name, hour_of(name), FLEET, str(error), None))
    return None, faults


def _by_worth(objects: Objects, window: Window) -> Iterator[str]:
    """Yield the archive's lists: the newest by the end of the window first, then the oldest behind it."""
    folders = sorted((day, each) for each in objects.folders(FLEET) if (day := day_of_folder(each)))
    before = [each for day, each in folders if window.day is None or day <= window.day]
    for folder in reversed(before):
        yield from reversed([each.name for each in objects.beneath(f"{FLEET}/{folder}")])
    for _, folder in folders[len(before) :]:
        yield from (each.name for each in objects.beneath(f"{FLEET}/{folder}"))


def _rows(name: str, body: bytes) -> Iterator[tuple[str, str, int | None]]:
    if not body:
        raise FleetListError(name, "it has no bytes")
    try:
        text = gzip.decompress(body) if body.startswith(_GZIP) else body
        for line in text.splitlines():
            members = json.loads(line)
            thing, state = str(members["thing"]), str(members["state"])
            since_ms = members.get("since_ms")
            yield thing, state, None if since_ms is None else whole_number(since_ms, LAST_MS)
    except (ValueError, KeyError, TypeError, EOFError, OSError, zlib.error) as error:
        raise FleetListError(name, f"it cannot be read: {error!r}") from error
