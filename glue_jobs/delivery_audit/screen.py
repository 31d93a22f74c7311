"""The screen: most events are ordinary, and of these it suffices to judge one of each shape.

An event is plain if it has one tap row or none, one sender, one digest, one time of acceptance and one of
decision, at most one handover, and no row of another day or that is worth a look by itself. What else the
judge looks at is its shape: types, routes, destinations, outcomes, versions and so on, but no time and no
name. Events of one shape are judged alike, so one sample is judged, and what it counts is counted as often as
the shape comes. Everything else is a suspect: what is not plain, rare shapes, and shapes whose sample has
something to show.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf
from pyspark.sql.types import LongType, StructField, StructType

from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.ledger import SENT_BEFORE, Basis
from eventplane.names import PLANE, PLANE_CLIENT
from eventplane.reader_receipts import recorded_percent
from eventplane.reasons import Outcome
from glue_jobs.delivery_audit.contracts import INTERVAL_MS, ContractHistory
from glue_jobs.delivery_audit.event import CLOCK_SLACK_MS, LONGEST_DECISION_MS
from glue_jobs.delivery_audit.event_group import (
    AccountCount,
    InboxCount,
    Judgement,
    RouteCount,
    RowCount,
    Ruling,
)
from glue_jobs.delivery_audit.findings import Leg
from glue_jobs.delivery_audit.judging import Judged, Key
from glue_jobs.delivery_audit.rows import KEY, is_by_wrong_clock, is_event, is_own_report, letter_ids
from glue_jobs.delivery_audit.rules import DAY_MS, LAST_MS, Watermark

RARE: Final = 64
"""How often a shape comes at least of which one sample is judged. Ours: the others cost less than a sample
that turns out to be none."""

_UNKNOWN: Final = -1
"""Stands for the time of a delivery whose place in the order is unknown, and of all others of its event."""

_EXTRAORDINARY: Final = frozenset(Ruling) - {
    Ruling.DELIVERED,
    Ruling.NO_INTEREST,
    Ruling.UNROUTED,
    Ruling.INTERNAL,
}


def screened(
    tap: DataFrame,
    ledger: DataFrame,
    handovers: DataFrame,
    history: ContractHistory,
    watermark: Watermark,
    inboxes: Collection[str],
    given_up: DataFrame | None = None,
) -> DataFrame:
    """Return one row for each key with `is_plain`, its `shape`, and its times in Unix milliseconds.

    The rows are those of `rows.tap_rows` and so on; a key without one in the window is left out. `at_ms` is
    when it was accepted or entered, `decided_ms` when it was decided; `recorded_ms`, `handed_over_ms` (how
    long the last hop took) as far as known. For `inboxes` that promise order: `stream` and `sent` tell what
    has to be in order, `first_0` and so on when it was first put into each. No event is plain whose reader
    wrote one of the dead letters `given_up`, by its id `letter`.
    """
    ordered = sorted(inboxes)
    parts = (
        _tap(tap, history, watermark, ordered),
        _ledger(_with_letters(ledger, given_up), history, watermark, ordered),
        _handovers(handovers, history.readers, ordered),
    )
    # All columns are whole numbers, so that the aggregation is compiled and needs no objects.
    rows = reduce(DataFrame.unionByName, parts).repartition(*KEY)
    first = [f"first_{place}" for place in range(len(ordered))]
    streams = (
        # One identity of several senders is several events, and in no stream.
        sf.when(
            sf.min("sender") == sf.max("sender"), sf.coalesce(sf.min("tap_stream"), sf.min("ledger_stream"))
        ).alias("stream"),
        # As in `judging.ordered_deliveries`: the number, else the time, unless tap and ledger differ in it.
        sf.coalesce(
            sf.min("number"),
            sf.when(
                sf.coalesce(sf.min("accepted_ms"), sf.min("entered_ms")) == sf.min("entered_ms"),
                sf.min("entered_ms"),
            ),
        ).alias("sent"),
        *(sf.min(name).alias(name) for name in first),
    )
    events = rows.groupBy(*KEY).agg(
        sf.count(sf.lit(1)).alias("rows"),
        sf.max("is_within").alias("is_within"),
        sf.sum("is_odd").alias("odd"),
        sf.sum("is_tap").alias("taps"),
        sf.count("handed_over_ms").alias("handovers"),
        sf.sum("shape").alias("shape"),
        sf.min("sender").alias("sender"),
        sf.max("sender").alias("other_sender"),
        sf.min("digest").alias("digest"),
        sf.max("digest").alias("other_digest"),
        sf.min("at_ms").alias("at_ms"),
        sf.max("at_ms").alias("other_at_ms"),
        sf.min("decided_ms").alias("decided_ms"),
        sf.max("decided_ms").alias("other_decided_ms"),
        sf.max("recorded_ms").alias("recorded_ms"),
        sf.max("handed_over_ms").alias("handed_over_ms"),
        sf.min("ended_ms").alias("ended_ms"),
        sf.max("from_device").alias("from_device"),
        *(streams if ordered else ()),
    )
    is_plain = (
        (sf.col("odd") == 0)
        & (sf.col("sender") == sf.col("other_sender"))
        & sf.col("digest").eqNullSafe(sf.col("other_digest"))
        & (sf.col("at_ms") == sf.col("other_at_ms"))
        & (sf.col("decided_ms") == sf.col("other_decided_ms"))
        & (sf.col("taps") == sf.col("from_device"))
        & (sf.col("handovers") <= 1)
        & (sf.coalesce("ended_ms", "decided_ms") >= sf.col("decided_ms"))
    )
    return events.where("is_within = 1").select(
        *KEY,
        sf.coalesce(is_plain, sf.lit(False)).alias("is_plain"),
        sf.xxhash64("rows", "shape").alias("shape"),
        *("taps", "at_ms", "decided_ms", "recorded_ms", "handed_over_ms"),
        *(("stream", "sent", *first) if ordered else ()),
    )


def _with_letters(ledger: DataFrame, given_up: DataFrame | None) -> DataFrame:
    """Add to the rows whether one of these dead letters is about their event."""
    if given_up is None:
        return ledger.withColumn("is_given_up", sf.lit(False))
    known = given_up.withColumn("is_given_up", sf.lit(True))
    return ledger.withColumn("letter", letter_ids()).join(known, "letter", "left")


def _number(column: Column | None, name: str) -> Column:
    return (sf.lit(None) if column is None else column).cast("long").alias(name)


def _row(odd: Column, shape: list[Column | str], ordered: Collection[str], **members: Column) -> list[Column]:
    """A row of any archive for the aggregation; a condition that is unknown makes it odd."""
    names = ["sender", "digest", "at_ms", "decided_ms", "recorded_ms", "handed_over_ms", "ended_ms"]
    if ordered:
        names += ["tap_stream", "ledger_stream", "accepted_ms", "entered_ms", "number"]
        names += [f"first_{place}" for place in range(len(ordered))]
    return [
        *map(sf.col, KEY),
        _number(sf.coalesce(odd, sf.lit(True)), "is_odd"),
        _number(sf.coalesce("within", sf.lit(False)), "is_within"),
        _number(members.get("is_tap", sf.lit(0)), "is_tap"),
        _number(members.get("from_device", sf.lit(0)), "from_device"),
        sf.xxhash64(*shape).alias("shape"),
        *(_number(members.get(name), name) for name in names),
    ]


def _tap(
    rows: DataFrame, history: ContractHistory, watermark: Watermark, ordered: Collection[str]
) -> DataFrame:
    client, service = sf.col("client_id"), sf.coalesce("service", sf.lit(""))
    is_plane = client == PLANE_CLIENT
    sender = sf.when(is_plane, sf.lit(PLANE)).otherwise(sf.concat(client, sf.lit("/"), service))
    odd = _any(
        ~is_event(),
        sf.col("is_redacted"),
        sf.col("unknown_members"),
        sf.col("unread").isNotNull(),
        ~sf.col("within"),
        sf.col("type") == DEAD_LETTER_TYPE,
        sf.col("dead_letter_reason").isNotNull(),
        watermark.is_late(sf.col("accepted_at_ms"), sf.col("archived_at_ms")),
        # Which contract was in force for it depends on the time.
        *(
            sf.col("followed").eqNullSafe(each.candidate) & (sf.col("accepted_at_ms") <= each.to_ms)
            for each in history.candidacies
            if each.versions
        ),
    )
    shape: list[Column | str] = [
        sf.lit("tap"),
        _day("accepted_at_ms"),
        is_plane,
        service,
        "type",
        is_own_report(),
        "routes",
        sf.col("recorded_at_ms").isNull(),
        sf.col("expires_at_ms").isNull(),
        "asks_best_effort",
    ]
    stream = sf.xxhash64(
        "client_id", "epoch", sf.coalesce("partition", "source"), sf.col("sequence").isNotNull()
    )
    return rows.select(
        _row(
            odd,
            shape,
            ordered,
            is_tap=sf.lit(1),
            sender=sf.xxhash64(sender),
            digest=_digest(),
            at_ms=sf.col("accepted_at_ms"),
            recorded_ms=sf.col("recorded_at_ms"),
            tap_stream=stream,
            accepted_ms=sf.col("accepted_at_ms"),
            number=sf.col("sequence"),
            **{
                f"first_{place}": sf.when(sf.col("unread").isNotNull(), _UNKNOWN)
                for place in range(len(ordered))
            },
        )
    )


def _ledger(
    rows: DataFrame, history: ContractHistory, watermark: Watermark, ordered: Collection[str]
) -> DataFrame:
    client, sender, outcome = sf.col("client_id"), sf.col("sender"), sf.col("outcome")
    decided, entered = sf.col("decided_at_ms"), sf.col("entered_at_ms")
    received = sf.coalesce("received_at_ms", "entered_at_ms")
    is_time = decided.between(0, LAST_MS) & entered.between(0, LAST_MS)
    names_client = sender.startswith(sf.concat(client, sf.lit("/")))
    # Of bytes: of texts Spark would count all characters.
    bytes_of = sender.cast("binary")
    service = sf.when(names_client, sf.substr(bytes_of, sf.octet_length(client) + 2)).otherwise(bytes_of)
    from_device = sf.col("entered_by").isin(history.uplinks)
    is_ordinary = ((outcome == Outcome.DELIVERED) & sf.col("reason").isNull()) | outcome.isin(
        Outcome.UNROUTED, Outcome.NO_INTEREST
    )
    odd = _any(
        sf.col("bad").isNotNull(),
        sf.col("unknown_members"),
        sf.col("contract_version").isNull() | sf.col("type").isNull() | (sf.col("id") == ""),
        ~sf.col("within"),
        ~is_time,
        ~is_ordinary,
        sf.col("attempt") != 1,
        sf.coalesce("basis", sf.lit(str(Basis.IN_FORCE))) != str(Basis.IN_FORCE),
        sf.col("put_back_by").isNotNull(),
        sf.coalesce("is_given_up", sf.lit(False)),
        sf.col("type") == DEAD_LETTER_TYPE,
        is_by_wrong_clock(),
        # Also where the queue does not tell when it was received.
        decided > received + LONGEST_DECISION_MS,
        received < entered - CLOCK_SLACK_MS,
        watermark.is_late(sf.col("entered_at_ms"), sf.col("decided_at_ms")),
        _is_stale(history),
        *(
            sf.col("contract_version").isin(*each.versions) & (decided <= each.to_ms)
            for each in history.candidacies
        ),
    )
    shape: list[Column | str] = [
        sf.lit("ledger"),
        _day("entered_at_ms"),
        sf.coalesce(names_client, sf.lit(False)),
        client.isNull(),
        service,
        is_own_report(),
        _owes_end(history, watermark),
        *("entered_by", "contract_version", "type", "priority", "route", "destination", "outcome", "reason"),
    ]
    # As in `judging.is_sent`.
    is_whole = entered.isNotNull() & sf.col("bad").isNull()
    is_sent = is_whole & (outcome == Outcome.DELIVERED) & ~sf.col("reason").eqNullSafe(SENT_BEFORE)
    # As in `judging.has_order`.
    has_order = sf.col("within") & is_time & ~is_by_wrong_clock()
    at_ms = sf.when(has_order, decided).otherwise(_UNKNOWN)
    first = {
        f"first_{place}": sf.when(is_sent & (sf.col("destination") == inbox), at_ms)
        for place, inbox in enumerate(ordered)
    }
    return rows.select(
        _row(
            odd,
            shape,
            ordered,
            from_device=sf.when(from_device, 1).otherwise(0),
            sender=sf.xxhash64("sender"),
            digest=_digest(),
            at_ms=entered,
            decided_ms=decided,
            entered_ms=entered,
            ledger_stream=sf.xxhash64("client_id", sf.lit(None).cast("string"), "source", sf.lit(False)),
            **first,
        )
    )


def _owes_end(history: ContractHistory, watermark: Watermark) -> Column:
    """Whether the end of the row's delivery has to be recorded by now, as `delivery._is_seen` has it."""
    share = sf.crc32(sf.concat(sf.col("source"), sf.lit("\n"), sf.col("id")).cast("binary")) % 100
    asked = [
        (sf.col("contract_version") == contract.version)
        & (sf.col("destination") == inbox)
        & (share < recorded_percent(contract.channel(inbox)))
        & (sf.col("decided_at_ms") + history.patience_ms[inbox] <= watermark.ms)
        for contract in history.contracts
        for inbox in sorted(history.readers)
        if inbox.partition(".")[0] in contract.participants
    ]
    return sf.coalesce(_any(sf.lit(False), *asked), sf.lit(False))


def _handovers(rows: DataFrame, readers: Collection[str], ordered: Collection[str]) -> DataFrame:
    decided, entered = sf.col("decided_at_ms"), sf.col("entered_at_ms")
    is_program = sf.col("status").isNull() & sf.col("channel").isin(*readers)
    odd = _any(
        sf.col("bad").isNotNull(),
        sf.col("unknown_members"),
        ~decided.between(0, LAST_MS) | ~entered.between(0, LAST_MS),
        sf.col("outcome") != Outcome.DELIVERED,
        ~(sf.col("status").between(200, 299) | is_program) | (sf.col("attempt") < 1),
        sf.col("type") == DEAD_LETTER_TYPE,
        decided < entered,
    )
    members = "channel", "type", "outcome", "reason", "route", "status"
    shape: list[Column | str] = [sf.lit("handovers"), *members]
    return rows.select(
        _row(
            odd,
            shape,
            ordered,
            sender=sf.xxhash64("sender"),
            handed_over_ms=decided - entered,
            ended_ms=decided,
        )
    )


def _any(*conditions: Column | bool) -> Column:
    """Whether one holds; null if one is unknown and none holds."""
    # Without a lateness one of them is a plain bool.
    return reduce(or_, map(sf.lit, conditions))


def _digest() -> Column:
    """A number for the digest of a row's event; null where it has none, as in older versions' rows."""
    return sf.when(sf.col("digest").isNotNull(), sf.xxhash64("digest"))


def _day(time: str) -> Column:
    return sf.floor(sf.col(time) / DAY_MS)


def _is_stale(history: ContractHistory) -> Column:
    if not history.stale:
        return sf.lit(False)
    interval = sf.floor(sf.col("decided_at_ms") / INTERVAL_MS).cast("string")
    used = sf.concat_ws(" ", "contract_version", interval)
    return used.isin([f"{version} {at}" for version, at in sorted(history.stale)])


@dataclass(frozen=True, slots=True)
class Shape:
    """A shape of plain events: how many there are, the `sample`'s key, and times, Unix milliseconds.

    `latencies` counts by `Leg` and milliseconds.
    """

    count: int
    sample: Key
    at_ms: tuple[int, int]
    first_decided_ms: int
    latencies: Counter[tuple[str, int]]


@dataclass(frozen=True)
class Screened:
    """The events of `screened`, kept, and their common shapes.

    `overtaken` are the deliveries that came after one that was sent later (`judging.Task`), `counted` the
    keys of plain events of common shapes among those.
    """

    events: DataFrame
    common: Mapping[int, Shape]
    overtaken: Mapping[Key, Mapping[str, int]]
    counted: frozenset[Key]
    suspects: int

    @classmethod
    def of(cls, events: DataFrame, inboxes: Collection[str]) -> Screened:
        """Find the shapes of `events`, which are kept somewhere."""
        latencies, shapes, suspects = defaultdict[int, Counter[tuple[str, int]]](Counter), [], 0
        # By place: there are a fifth as many as events, and by name each member would take longer.
        for shape, span, ms, count, *others in _shapes(events).collect():
            if span is not None:
                latencies[shape][span, ms] = count
            elif shape is None or count < RARE:
                suspects += count
            else:
                shapes.append((shape, count, *others))
        common = {
            shape: Shape(count, (first, second), (least, greatest), decided, latencies[shape])
            for shape, count, first, second, least, greatest, decided in shapes
        }
        overtaken, counted = defaultdict[Key, dict[str, int]](dict), set[Key]()
        for place, inbox in enumerate(sorted(inboxes)):
            for row in _overtaken(events, f"first_{place}").collect():
                key = row.key, row.second_key
                overtaken[key][inbox] = row.earlier_ms
                if row.is_plain and row.shape in common:
                    counted.add(key)
        return cls(events, common, dict(overtaken), frozenset(counted), suspects)

    def first_keys(self) -> DataFrame:
        """The keys to judge first: those of suspects, of samples, and of what was overtaken."""
        suspects = self.events.where(~sf.col("is_plain") | ~sf.col("shape").isin([*self.common]))
        others = {*self.overtaken, *(each.sample for each in self.common.values())}
        return suspects.select(*KEY).union(_frame(self.events, others))

    def keys_of(self, shapes: Collection[int]) -> DataFrame:
        """The keys of the plain events of some shapes."""
        return self.events.where(sf.col("is_plain") & sf.col("shape").isin([*shapes])).select(*KEY)

    def add(self, judged: Judged, samples: Mapping[Key, Judged]) -> list[int]:
        """Add the common shapes to `judged` by their samples; return those that are not ordinary."""
        others = []
        for shape, each in self.common.items():
            sample = samples[each.sample]
            if not _is_ordinary(sample.judgement):
                others.append(shape)
                continue
            of_sample = Counter(sample.judgement.latencies)
            sample.judgement.latencies.clear()
            judged.judgement.add(sample.judgement, times=each.count)
            accepted = each.at_ms if sample.accepted_ms else ()
            judged.note_times(accepted, dict.fromkeys(sample.first_decided_ms, each.first_decided_ms))
            for key, times in of_sample.items():
                for (span, ms), count in each.latencies.items():
                    if span == key.span:
                        judged.judgement.latencies[key._replace(ms=ms)] += times * count
        return others


def _shapes(events: DataFrame) -> DataFrame:
    """Count the events of each shape, and by shape how often each `span` took how many `ms`.

    What is not plain has no shape; where `span` is null events are counted.
    """
    at, decided, recorded = sf.col("at_ms"), sf.col("decided_ms"), sf.col("recorded_ms")
    spans = {
        Leg.DEVICE_TO_CLOUD: at - recorded,
        Leg.CLOUD_TO_INBOX: decided - at,
        Leg.DEVICE_TO_INBOX: decided - recorded,
        Leg.INBOX_TO_CONSUMER: sf.col("handed_over_ms"),
    }
    itself = sf.struct(sf.lit(None).cast("string").alias("span"), sf.lit(None).cast("long").alias("ms"))
    taken = (sf.struct(sf.lit(str(span)).alias("span"), ms.alias("ms")) for span, ms in spans.items())
    counted = events.select(
        sf.when(sf.col("is_plain"), sf.col("shape")).alias("shape"),
        *(*KEY, "at_ms", "decided_ms"),
        sf.inline(sf.array(itself, *taken)),
    )
    is_counted = sf.col("span").isNull() | (sf.col("shape") + sf.col("ms")).isNotNull()
    return (
        counted.where(is_counted)
        .groupBy("shape", "span", "ms")
        .agg(
            sf.count(sf.lit(1)).alias("count"),
            sf.min(KEY[0]).alias("first"),
            sf.min_by(KEY[1], KEY[0]).alias("second"),
            sf.min("at_ms").alias("least"),
            sf.max("at_ms").alias("greatest"),
            sf.min("decided_ms").alias("decided"),
        )
    )


def _is_ordinary(sample: Judgement) -> bool:
    """Whether there is nothing to be said of a sample but that it is there."""
    if sample.findings or sample.replay or sample.quarantine or sample.not_in_tap:
        return False
    return all(
        isinstance(key, RowCount | AccountCount)
        or (isinstance(key, RouteCount | InboxCount) and key.measure not in _EXTRAORDINARY)
        for key in sample.counts
    )


def _overtaken(events: DataFrame, first: str) -> DataFrame:
    """Return the events whose delivery at `first` is after `earlier_ms`, that of one that was sent later."""
    is_known = (sf.col(first) != _UNKNOWN) & sf.col("stream").isNotNull() & sf.col("sent").isNotNull()
    # From the last to the first: so the least that came later is known from row to row.
    later = Window.partitionBy("stream").orderBy("before").rangeBetween(Window.unboundedPreceding, -1)
    delivered = events.where(is_known).withColumn("before", -sf.col("sent"))
    seen = delivered.withColumn("earlier_ms", sf.min(first).over(later))
    return seen.where(sf.col("earlier_ms") < sf.col(first)).select(*KEY, "is_plain", "shape", "earlier_ms")


def _frame(like: DataFrame, keys: Iterable[Key]) -> DataFrame:
    schema = StructType([StructField(name, LongType()) for name in KEY])
    return like.sparkSession.createDataFrame(sorted(keys), schema)
