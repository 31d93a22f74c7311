"""What the judgement of deliveries has found, as findings: router, and inbox to consumer."""

from __future__ import annotations

from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from eventplane.delivery import Outcome
from glue_jobs.delivery_audit.finding_rows import FINDING, finding, text
from glue_jobs.delivery_audit.findings import Kind
from glue_jobs.delivery_audit.hops import Hop
from glue_jobs.delivery_audit.verdicts import Verdict
from glue_jobs.delivery_audit.watermark import Watermark
from glue_jobs.delivery_audit.window import Window, day_of

Case = tuple[Column, Column]
"""Whether something is to be told of a row, and what: an array of findings."""


def evidence(deliveries: DataFrame, window: Window, watermark: Watermark) -> DataFrame:
    """The findings of `deliveries`."""
    cases = [*_on_the_way(watermark), *_router(), *_items(watermark), *_consumer()]
    if window.day is None:
        # What came into an inbox the day before is in the ledger of that day.
        cases.append(_strangers())
    # Most rows have nothing to tell: they are passed over before anything is built.
    telling = reduce(or_, (sf.coalesce(applies, sf.lit(False)) for applies, _ in cases))
    told = sf.array(*(sf.when(applies, case) for applies, case in cases))
    found = deliveries.where(sf.col("within") & telling)
    return found.select(sf.inline(sf.flatten(sf.array_compact(told)))).select(*FINDING.names)


def of_order(overtaken: DataFrame) -> DataFrame:
    """Order that was promised and not kept."""
    by_ms = sf.col("delivered_at_ms") - sf.col("overtaken_at_ms")
    told = finding(Kind.REORDERED, Hop.ROUTER, text(by_ms, " ms behind one that was sent later"))
    return overtaken.select(sf.inline(sf.array(told))).select(*FINDING.names)


def _on_the_way(watermark: Watermark) -> list[Case]:
    """Copies and latecomers."""
    copies, delivered = sf.col("copies"), sf.col("delivered")
    # Each copy that a device sends is routed, rightly.
    came = sf.greatest(sf.coalesce(copies, sf.lit(1)), sf.lit(1))
    archived_late = sf.col("leads") & watermark.is_late(sf.col("accepted_at_ms"), sf.col("archived_at_ms"))
    decided_late = watermark.is_late(sf.col("entered_at_ms"), sf.col("delivered_at_ms"))
    stored = text("archived ", sf.col("archived_at_ms") - sf.col("accepted_at_ms"), " ms after acceptance")
    after = text(sf.col("delivered_at_ms") - sf.col("entered_at_ms"), " ms after it entered")
    several = text(copies, " copies in the tap")
    too_many = text(delivered, " copies in the inbox, of ", came, " that came")
    return [
        _one(sf.col("leads") & (copies > 1), finding(Kind.DUPLICATE, Hop.DEVICE_CLOUD, several)),
        _one(delivered > came, finding(Kind.DUPLICATE, Hop.ROUTER, too_many)),
        _one(archived_late, finding(Kind.LATE, Hop.DEVICE_CLOUD, stored)),
        _one(decided_late, finding(Kind.LATE, Hop.ROUTER, after)),
    ]


def _router() -> list[Case]:
    verdict, outcome = sf.col("verdict"), sf.col("outcome")
    reason = sf.coalesce("reason", sf.lit("no reason given"))
    strayed = (verdict == Verdict.MISROUTED) & (outcome == Outcome.DELIVERED) & ~sf.col("is_routed")
    unbacked = text("recorded as ", outcome, ", ", reason, "; nothing bears it out")
    claimed = sf.when(outcome.isNull(), sf.lit("no record")).otherwise(unbacked)
    ends = [str(each) for each in (Outcome.EXPIRED, Outcome.DROPPED, Outcome.DEAD_LETTERED)]
    ended = sf.when(verdict.isin(ends), verdict).when(
        (verdict == Verdict.INTERNAL) & outcome.isin(ends), outcome
    )
    stray = finding(Kind.UNROUTED_DELIVERED, Hop.ROUTER, text("to ", sf.col("destination")))
    wrong = finding(Kind.MISROUTED, Hop.ROUTER, text("recorded as ", outcome))
    unknown = finding(Kind.FORGED, Hop.ROUTER, sf.lit("the tap has no such event"))
    sent = text(sf.col("sender"), " to ", sf.col("destination"))
    version = text("by contract ", sf.col("contract_version"))
    skew_ms = sf.col("clock_skew_ms")
    side = sf.when(skew_ms > 0, sf.lit("ahead")).otherwise(sf.lit("behind"))
    clock = text("the router's clock is at least ", sf.abs(skew_ms), " ms ", side)
    return [
        _one(sf.col("is_forbidden"), finding(Kind.NOT_ALLOWED, Hop.ROUTER, sent)),
        _one(sf.col("is_stale"), finding(Kind.STALE_CONTRACT, Hop.ROUTER, version)),
        _one(sf.col("is_unconfirmed"), finding(Kind.UNCONFIRMED, Hop.ROUTER, version)),
        _one(skew_ms.isNotNull(), finding(Kind.CLOCK_SKEW, Hop.ROUTER, clock)),
        _one(verdict == Verdict.LOST, finding(Kind.LOST, Hop.ROUTER, claimed)),
        _one(strayed, stray),
        _one((verdict == Verdict.MISROUTED) & ~strayed, wrong),
        _one(verdict == Verdict.UNEXPLAINED, unknown),
        _one(ended.isNotNull(), finding(ended, Hop.ROUTER, reason)),
    ]


def _items(watermark: Watermark) -> list[Case]:
    """Items that the cloud refused, with and without a record; they are no events, so nothing names them."""
    items = sf.col("items")
    nothing = dict.fromkeys(
        ("epoch", "sequence", "source", "id", "type", "route", "contract_version"), sf.lit(None)
    )
    known = {
        **nothing,
        "destination": sf.lit(None),
        "device": items["client_id"],
        "archive_file": items["file"],
        "at_ms": items["accepted_at_ms"],
    }
    vanished = text("no record of an item refused as ", items["reason"])
    lost = finding(Kind.LOST, Hop.ROUTER, vanished, **known)
    dead = finding(Kind.DEAD_LETTERED, Hop.ROUTER, items["reason"], **known)
    judged = (items["missing"] > 0) & ~watermark.is_open(items["accepted_at_ms"])
    recorded = items["refused"] - items["missing"]
    return [
        (judged, sf.array_repeat(lost, items["missing"])),
        (recorded > 0, sf.array_repeat(dead, recorded)),
    ]


def _consumer() -> list[Case]:
    """The last hop."""
    end = sf.col("consumption")
    verdict = end["verdict"]
    where = {"at_ms": end["put_at_ms"], "archive_file": sf.coalesce(end["file"], "file")}
    hop = Hop.INBOX_CONSUMER
    answer = text(end["reason"], ", HTTP status ", end["status"])
    too_often = text(end["handed_over"], " handovers of ", end["put"], " copies")
    claimed = text("recorded as ", end["outcome"], ", ", end["reason"], "; nothing bears it out")
    missing = sf.when(end["ended_at_ms"].isNull(), sf.lit("no record of a handover")).otherwise(claimed)
    return [
        _one(verdict == Verdict.LOST, finding(Kind.LOST, hop, missing, **where)),
        _one(verdict == Verdict.EXPIRED, finding(Kind.EXPIRED, hop, end["reason"], **where)),
        _one(verdict == Verdict.DROPPED, finding(Kind.DROPPED, hop, answer, **where)),
        _one(verdict == Verdict.DEAD_LETTERED, finding(Kind.DEAD_LETTERED, hop, answer, **where)),
        _one(end["handed_over"] > end["put"], finding(Kind.DUPLICATE, hop, too_often, **where)),
    ]


def _strangers() -> Case:
    """Handovers of what was never in the inbox."""

    def told(each: Column) -> Column:
        return finding(
            Kind.FORGED,
            Hop.INBOX_CONSUMER,
            sf.lit("the ledger never put it into the inbox"),
            date=sf.coalesce("date", day_of(each["entered_at_ms"])),
            type=each["type"],
            route=sf.lit(None),
            destination=each["channel"],
            archive_file=each["file"],
            at_ms=each["entered_at_ms"],
        )

    return sf.col("strangers").isNotNull(), sf.transform("strangers", told)


def _one(applies: Column, told: Column) -> Case:
    return applies, sf.array(told)
