"""The screen: most events are ordinary, and of these it suffices to judge one of each shape.

An event is plain if it has one tap row or none, one sender, one time of acceptance and one of decision, at
most one handover, and no row that is worth a look by itself. What else the judge looks at is its shape: types,
routes, destinations, outcomes, versions and so on, but no time and no name. Events of one shape are judged
alike, so one sample is judged and what it counts is counted as often as the shape comes. Everything else is a
suspect: what is not plain, the shapes that are rare, and the shapes whose sample has something to show.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from eventplane.delivery import DEAD_LETTER_TYPE, Outcome
from eventplane.device_reports import forwarder_source
from eventplane.ledger import SENT_BEFORE, Basis
from eventplane.sender import PLANE, PLANE_CLIENT
from glue_jobs.delivery_audit.clocks import CLOCK_SLACK_MS, LONGEST_DECISION_MS
from glue_jobs.delivery_audit.contracts import INTERVAL_MS, ContractHistory
from glue_jobs.delivery_audit.event_group import HourCount, Judgement, LatencyKey, RouteCount, Verdict
from glue_jobs.delivery_audit.hops import Span
from glue_jobs.delivery_audit.judging import Judged
from glue_jobs.delivery_audit.rows import KEY
from glue_jobs.delivery_audit.watermark import Watermark
from glue_jobs.delivery_audit.window import DAY_MS, LAST_MS

RARE: Final = 64
"""How often a shape comes at least of which one sample is judged. Ours: the others cost less than a sample
that turns out to be none."""

_THING: Final = "*"
_DAY = "day"
_ORDINARY: Final = frozenset({Verdict.DELIVERED, Verdict.NO_INTEREST, Verdict.UNROUTED, Verdict.INTERNAL})


def screened(
    tap: DataFrame,
    ledger: DataFrame,
    handovers: DataFrame,
    history: ContractHistory,
    watermark: Watermark,
    inboxes: Collection[str],
) -> DataFrame:
    """Return one row for each key with `is_plain`, its `shape`, and its times in Unix milliseconds.

    The rows are those of `rows.tap_rows` and so on. `at_ms` is when it was accepted or entered, `decided_ms`
    when it was decided; `recorded_ms`, `handed_over_ms` (how long the last hop took) as far as known. For
    `inboxes` that promise order: `stream` and `sent` tell what has to be in order, `first_0` and so on when
    it was first put into each.
    """
    ordered = sorted(inboxes)
    parts = (
        _tap(tap.where("within"), watermark, ordered),
        _ledger(ledger, history, watermark, ordered),
        _handovers(handovers),
    )
    # All columns are whole numbers, so that the aggregation is compiled and needs no objects.
    rows = reduce(DataFrame.unionByName, parts).repartition(*KEY)
    first = [f"first_{place}" for place in range(len(ordered))]
    streams = (
        sf.coalesce(sf.min("tap_stream"), sf.min("ledger_stream")).alias("stream"),
        # As in `ordering`: the number, else the time.
        sf.coalesce(sf.min("number"), sf.min("at_ms")).alias("sent"),
        *(sf.min(name).alias(name) for name in first),
    )
    events = rows.groupBy(*KEY).agg(
        sf.count(sf.lit(1)).alias("rows"),
        sf.sum("is_odd").alias("odd"),
        sf.sum("is_tap").alias("taps"),
        sf.count("handed_over_ms").alias("handovers"),
        sf.sum("shape").alias("shape"),
        sf.min("sender").alias("sender"),
        sf.max("sender").alias("other_sender"),
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
        & (sf.col("at_ms") == sf.col("other_at_ms"))
        & (sf.col("decided_ms") == sf.col("other_decided_ms"))
        & (sf.col("taps") == sf.col("from_device"))
        & (sf.col("handovers") <= 1)
        & (sf.coalesce("ended_ms", "decided_ms") >= sf.col("decided_ms"))
    )
    return events.select(
        *KEY,
        sf.coalesce(is_plain, sf.lit(False)).alias("is_plain"),
        sf.xxhash64("rows", "shape").alias("shape"),
        *("taps", "at_ms", "decided_ms", "recorded_ms", "handed_over_ms"),
        *(("stream", "sent", *first) if ordered else ()),
    )


def _number(column: Column | None, name: str) -> Column:
    return (sf.lit(None) if column is None else column).cast("long").alias(name)


def _row(odd: Column, shape: list[Column | str], ordered: Collection[str], **members: Column) -> list[Column]:
    """A row of any archive for the aggregation; a condition that is unknown makes it odd."""
    names = ["sender", "at_ms", "decided_ms", "recorded_ms", "handed_over_ms", "ended_ms"]
    if ordered:
        names += ["tap_stream", "ledger_stream", "number"]
        names += [f"first_{place}" for place in range(len(ordered))]
    return [
        *map(sf.col, KEY),
        _number(sf.coalesce(odd, sf.lit(True)), "is_odd"),
        _number(members.get("is_tap", sf.lit(0)), "is_tap"),
        _number(members.get("from_device", sf.lit(0)), "from_device"),
        sf.xxhash64(*shape).alias("shape"),
        *(_number(members.get(name), name) for name in names),
    ]


def _tap(rows: DataFrame, watermark: Watermark, ordered: Collection[str]) -> DataFrame:
    client, service = sf.col("client_id"), sf.coalesce("service", sf.lit(""))
    is_plane = client == PLANE_CLIENT
    sender = sf.when(is_plane, sf.lit(PLANE)).otherwise(sf.concat(client, sf.lit("/"), service))
    odd = _any(
        sf.col("fault").isNotNull(),
        sf.col("refusal").isNotNull(),
        sf.col("unknown_members"),
        sf.col("type") == DEAD_LETTER_TYPE,
        sf.col("dead_letter_reason").isNotNull(),
        _is_late(watermark, "accepted_at_ms", "archived_at_ms"),
    )
    shape: list[Column | str] = [
        sf.lit("tap"),
        _day("accepted_at_ms"),
        is_plane,
        service,
        "type",
        _is_own_report(client),
        "routes",
        sf.col("recorded_at_ms").isNull(),
        sf.col("expires_at_ms").isNull(),
        "asks_best_effort",
    ]
    stream = sf.xxhash64("client_id", "epoch", sf.coalesce("partition", "source"))
    return rows.select(
        _row(
            odd,
            shape,
            ordered,
            is_tap=sf.lit(1),
            sender=sf.xxhash64(sender),
            at_ms=sf.col("accepted_at_ms"),
            recorded_ms=sf.col("recorded_at_ms"),
            tap_stream=stream,
            number=sf.col("sequence"),
        )
    )


def _ledger(
    rows: DataFrame, history: ContractHistory, watermark: Watermark, ordered: Collection[str]
) -> DataFrame:
    client, sender, outcome = sf.col("client_id"), sf.col("sender"), sf.col("outcome")
    decided, entered = sf.col("decided_at_ms"), sf.col("entered_at_ms")
    received = sf.coalesce("received_at_ms", "entered_at_ms")
    names_client = sender.startswith(sf.concat(client, sf.lit("/")))
    service = sf.when(names_client, sf.substr(sender, sf.length(client) + 2)).otherwise(sender)
    from_device = sf.col("entered_by").isin(history.uplinks)
    is_ordinary = ((outcome == Outcome.DELIVERED) & sf.col("reason").isNull()) | outcome.isin(
        Outcome.UNROUTED, Outcome.NO_INTEREST
    )
    odd = _any(
        sf.col("line").isNotNull(),
        sf.col("unknown_members"),
        sf.col("contract_version").isNull() | sf.col("type").isNull() | (sf.col("id") == ""),
        ~decided.between(0, LAST_MS) | ~entered.between(0, LAST_MS),
        ~is_ordinary,
        sf.col("attempt") != 1,
        sf.coalesce("basis", sf.lit(str(Basis.IN_FORCE))) != str(Basis.IN_FORCE),
        sf.col("type") == DEAD_LETTER_TYPE,
        decided > received + LONGEST_DECISION_MS,
        decided < sf.greatest(entered, received) - CLOCK_SLACK_MS,
        _is_late(watermark, "entered_at_ms", "decided_at_ms"),
        _is_stale(history),
    )
    shape: list[Column | str] = [
        sf.lit("ledger"),
        _day("entered_at_ms"),
        sf.coalesce(names_client, sf.lit(False)),
        client.isNull(),
        service,
        _is_own_report(client),
        *("entered_by", "contract_version", "type", "priority", "route", "destination", "outcome", "reason"),
    ]
    is_sent = (outcome == Outcome.DELIVERED) & ~sf.col("reason").eqNullSafe(SENT_BEFORE)
    first = {
        f"first_{place}": sf.when(is_sent & (sf.col("destination") == inbox), decided)
        for place, inbox in enumerate(ordered)
    }
    return rows.select(
        _row(
            odd,
            shape,
            ordered,
            from_device=sf.when(from_device, 1).otherwise(0),
            sender=sf.xxhash64("sender"),
            at_ms=entered,
            decided_ms=decided,
            ledger_stream=sf.xxhash64("client_id", sf.lit(None).cast("string"), "source"),
            **first,
        )
    )


def _handovers(rows: DataFrame) -> DataFrame:
    decided, entered = sf.col("decided_at_ms"), sf.col("entered_at_ms")
    odd = _any(
        sf.col("line").isNotNull(),
        sf.col("unknown_members"),
        ~decided.between(0, LAST_MS) | ~entered.between(0, LAST_MS),
        sf.col("outcome") != Outcome.DELIVERED,
        sf.col("type") == DEAD_LETTER_TYPE,
        decided < entered,
    )
    shape: list[Column | str] = [sf.lit("handovers"), "channel", "type", "outcome", "reason", "route", "status"]
    return rows.select(
        _row(
            odd,
            shape,
            (),
            sender=sf.xxhash64("sender"),
            handed_over_ms=decided - entered,
            ended_ms=decided,
        )
    )


def _any(*conditions: Column) -> Column:
    """Whether one holds; null if one is unknown and none holds."""
    return reduce(or_, conditions)


def _day(time: str) -> Column:
    return sf.floor(sf.col(time) / DAY_MS)


def _is_late(watermark: Watermark, since: str, written: str) -> Column:
    if not watermark.lateness_s:
        return sf.lit(False)
    return sf.col(written) - sf.col(since) > 1_000 * watermark.lateness_s


def _is_own_report(client: Column) -> Column:
    """Whether the source is the one of which the device's forwarder reports."""
    before, _, after = forwarder_source(_THING).partition(_THING)
    return sf.col("source").eqNullSafe(sf.concat(sf.lit(before), client, sf.lit(after)))


def _is_stale(history: ContractHistory) -> Column:
    if not history.stale:
        return sf.lit(False)
    interval = sf.floor(sf.col("decided_at_ms") / INTERVAL_MS).cast("string")
    used = sf.concat_ws(" ", "contract_version", interval)
    return used.isin([f"{version} {at}" for version, at in sorted(history.stale)])
