"""What the judgements have found, as findings: device to cloud, router, inbox to consumer."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from eventplane.delivery import Outcome
from eventplane.device_reports import MANIFEST
from glue_jobs.delivery_audit.completeness import Completeness
from glue_jobs.delivery_audit.deliveries import Verdict
from glue_jobs.delivery_audit.device_reports import REPORTS, is_own
from glue_jobs.delivery_audit.findings import Kind, findings, text
from glue_jobs.delivery_audit.hops import Hop
from glue_jobs.delivery_audit.numbers import length
from glue_jobs.delivery_audit.watermark import Watermark

_NO_NAMES = ("source", "id")
"""Of a finding from a report: they name the report, and the finding is about another event."""


def of_completeness(found: Completeness, epochs: DataFrame, clocks: DataFrame) -> DataFrame:
    """Device to cloud: lost, given up, not stored, manifests missing, new epochs, clocks."""
    number = sf.col("first").alias("sequence")
    span = sf.when(length() > 1, text("numbers ", sf.col("first"), " to ", sf.col("last"), "; "))
    lost = found.lost.withColumn(
        "detail",
        text(
            sf.coalesce(span, sf.lit("")),
            sf.when(sf.col("first").isNull(), text(sf.col("missing"), " events; ")).otherwise(sf.lit("")),
            "stated by manifest ",
            sf.col("id"),
        ),
    )
    given_up = text(sf.coalesce(span, sf.lit("")), sf.col("reason"), ", reported by ", sf.col("id"))
    refused = text(sf.col("count"), " not stored: ", sf.col("reason"), ", from ", sf.col("channel"))
    gone = text("no manifest states the numbers ", sf.col("after"), " to ", sf.col("first") - 1)
    birth = text(sf.coalesce("birth", sf.lit("not reported")), "; epoch before: ", sf.col("lost_epoch"))
    ahead = sf.when(sf.col("skew_ms") > 0, sf.lit(" ms ahead, by ")).otherwise(sf.lit(" ms behind, by "))
    clock = text(sf.abs("skew_ms"), ahead, sf.col("samples"), " events")
    hop = Hop.DEVICE_CLOUD
    return union(
        findings(lost.drop(*_NO_NAMES).withColumn("sequence", number), Kind.LOST, hop, sf.col("detail")),
        _about_others(found.given_up.withColumn("sequence", number), sf.col("outcome"), given_up),
        _about_others(found.not_stored, sf.lit(str(Kind.DROPPED)), refused),
        findings(found.gone.drop("sequence"), Kind.MISSING_MANIFEST, hop, gone),
        findings(epochs, Kind.EPOCH_CHANGE, hop, birth),
        findings(clocks.where("is_off"), Kind.CLOCK_SKEW, hop, clock),
    )


def of_tap(tap: DataFrame) -> DataFrame:
    """Reports in another device's name, and such as cannot be read."""
    reports = tap.where(sf.col("type").isin(*REPORTS))
    unreadable = sf.col("report").isNull() | (
        (sf.col("type") == MANIFEST) & sf.col("report.statements").isNull()
    )
    why = sf.when(~is_own(), sf.lit("a report in the name of another device")).when(
        unreadable, sf.lit("a report that cannot be read")
    )
    forged = reports.withColumn("why", why).where(sf.col("why").isNotNull())
    return findings(forged, Kind.FORGED, Hop.DEVICE_CLOUD, sf.col("why"))


def of_deliveries(deliveries: DataFrame, watermark: Watermark) -> DataFrame:
    """The router's hop, and copies and latecomers on the way to it."""
    verdict, outcome = sf.col("verdict"), sf.col("outcome")
    reason = sf.coalesce("reason", sf.lit("no reason given"))
    strayed = (verdict == Verdict.MISROUTED) & (outcome == Outcome.DELIVERED) & ~sf.col("is_routed")
    claimed = sf.when(outcome.isNull(), sf.lit("no record")).otherwise(
        text("recorded as ", outcome, ", ", reason, "; nothing bears it out")
    )
    ends = (Outcome.EXPIRED, Outcome.DROPPED, Outcome.DEAD_LETTERED)
    ended = sf.when(verdict.isin(*map(str, ends)), verdict).when(
        (verdict == Verdict.INTERNAL) & outcome.isin(*map(str, ends)), outcome
    )
    # Each copy that a device sends is routed, rightly.
    came = sf.coalesce("copies", sf.lit(1))
    archived_late = sf.col("leads") & watermark.is_late(sf.col("accepted_at_ms"), sf.col("archived_at_ms"))
    decided_late = watermark.is_late(sf.col("entered_at_ms"), sf.col("delivered_at_ms"))
    after = text(sf.col("delivered_at_ms") - sf.col("entered_at_ms"), " ms after it entered")
    stored = text("archived ", sf.col("archived_at_ms") - sf.col("accepted_at_ms"), " ms after acceptance")
    cases = [
        _case(verdict == Verdict.LOST, Kind.LOST, Hop.ROUTER, claimed),
        _case(strayed, Kind.UNROUTED_DELIVERED, Hop.ROUTER, text("to ", sf.col("destination"))),
        _case(
            (verdict == Verdict.MISROUTED) & ~strayed,
            Kind.MISROUTED,
            Hop.ROUTER,
            text("recorded as ", outcome),
        ),
        _case(verdict == Verdict.UNEXPLAINED, Kind.FORGED, Hop.ROUTER, sf.lit("the tap has no such event")),
        _case(ended.isNotNull(), ended, Hop.ROUTER, reason),
        _case(
            sf.col("delivered") > came,
            Kind.DUPLICATE,
            Hop.ROUTER,
            text(sf.col("delivered"), " copies in the inbox, of ", came, " that came"),
        ),
        _case(
            sf.col("leads") & (sf.col("copies") > 1),
            Kind.DUPLICATE,
            Hop.DEVICE_CLOUD,
            text(sf.col("copies"), " copies in the tap"),
        ),
        _case(archived_late, Kind.LATE, Hop.DEVICE_CLOUD, stored),
        _case(decided_late, Kind.LATE, Hop.ROUTER, after),
    ]
    found = deliveries.withColumn("case", sf.explode(sf.array_compact(sf.array(*cases))))
    told = found.withColumn("accepted_at_ms", sf.coalesce("accepted_at_ms", "entered_at_ms"))
    return findings(told, sf.col("case.kind"), sf.col("case.hop"), sf.col("case.detail"))


def of_refusals(refusals: DataFrame, watermark: Watermark) -> DataFrame:
    """Items that the cloud refused, with and without a record; they are no events, so nothing names them."""
    judged = sf.when(watermark.is_open(sf.col("accepted_at_ms")), 0).otherwise(sf.col("missing"))
    lost = text("no record of an item refused as ", sf.col("reason"))
    cases = sf.array(
        sf.struct(sf.lit(str(Kind.LOST)).alias("kind"), judged.alias("items"), lost.alias("detail")),
        sf.struct(
            sf.lit(str(Kind.DEAD_LETTERED)).alias("kind"),
            (sf.col("refused") - sf.col("missing")).alias("items"),
            sf.col("reason").alias("detail"),
        ),
    )
    found = refusals.withColumn("case", sf.explode(sf.filter(cases, lambda each: each["items"] > 0)))
    single = found.withColumn("item", sf.explode(sf.sequence(sf.lit(1), sf.col("case.items"))))
    return findings(single, sf.col("case.kind"), Hop.ROUTER, sf.col("case.detail"))


def of_order(overtaken: DataFrame) -> DataFrame:
    """Order that was promised and not kept."""
    by_ms = sf.col("delivered_at_ms") - sf.col("overtaken_at_ms")
    return findings(overtaken, Kind.REORDERED, Hop.ROUTER, text(by_ms, " ms behind one that was sent later"))


def of_consumptions(consumptions: DataFrame, strangers: DataFrame) -> DataFrame:
    """The last hop."""
    verdict = sf.col("verdict")
    too_often = sf.col("handed_over") > sf.col("put")
    answer = text(sf.col("reason"), ", HTTP status ", sf.col("status"))
    cases = [
        _case(verdict == Verdict.LOST, Kind.LOST, Hop.INBOX_CONSUMER, sf.lit("no record of a handover")),
        _case(verdict == Verdict.DEAD_LETTERED, Kind.DEAD_LETTERED, Hop.INBOX_CONSUMER, answer),
        _case(
            too_often,
            Kind.DUPLICATE,
            Hop.INBOX_CONSUMER,
            text(sf.col("handed_over"), " handovers of ", sf.col("put"), " copies"),
        ),
    ]
    found = consumptions.withColumn("case", sf.explode(sf.array_compact(sf.array(*cases))))
    found = found.withColumnsRenamed({"channel": "destination", "put_at_ms": "at_ms"})
    unknown = strangers.withColumnsRenamed({"channel": "destination", "entered_at_ms": "at_ms"})
    return union(
        findings(found, sf.col("case.kind"), sf.col("case.hop"), sf.col("case.detail")),
        findings(unknown, Kind.FORGED, Hop.INBOX_CONSUMER, sf.lit("the ledger never put it into the inbox")),
    )


def union(*tables: DataFrame) -> DataFrame:
    """All rows."""
    return reduce(DataFrame.unionByName, tables)


def _case(applies: Column, kind: Kind | Column, hop: Hop, detail: Column) -> Column:
    word = kind if isinstance(kind, Column) else sf.lit(str(kind))
    found = sf.struct(word.alias("kind"), sf.lit(str(hop)).alias("hop"), detail.alias("detail"))
    return sf.when(applies, found)


def _about_others(rows: DataFrame, kind: Column, detail: Column) -> DataFrame:
    told = rows.withColumn("told", detail).drop(*_NO_NAMES)
    return findings(told, kind, Hop.DEVICE_CLOUD, sf.col("told"))
