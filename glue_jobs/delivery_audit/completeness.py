"""Device to cloud: what devices say they stored for the cloud, against what the tap has seen.

A manifest states how many events a device stored for its uplink between two numbers. Numbers that the tap
has not seen are missing as far as the manifest counts them; the device's reports of what it gave up explain
some of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as sf

from glue_jobs.delivery_audit.device_reports import births, discards, not_stored, reports, statements
from glue_jobs.delivery_audit.numbers import EPOCH, length, one_by_one, overlaps, seen, unseen
from glue_jobs.delivery_audit.watermark import Watermark
from glue_jobs.delivery_audit.window import Window

Keep = Callable[[DataFrame], DataFrame]

STATEMENT = (*EPOCH, "source", "id")


@dataclass(frozen=True, slots=True)
class Completeness:
    """The judgement on one window.

    `statements`: one row a manifest, with `missing` (stated and unseen), `explained` (given up by the
    device), `unexplained` (lost) and `open` (too young to be judged; then nothing of it is lost yet).
    `lost`: numbers that are lost, `first` to `last`; where a manifest cannot tell which of the unseen ones
    it means, `first` is null and `missing` counts them. `given_up`: numbers that the device gave up.
    `gone`: pairs of reports between which a manifest is missing. `births`, `not_stored`: as reported.
    """

    statements: DataFrame
    lost: DataFrame
    given_up: DataFrame
    gone: DataFrame
    births: DataFrame
    not_stored: DataFrame


def completeness(
    tap: DataFrame, uplinks: list[str], window: Window, watermark: Watermark, keep: Keep
) -> Completeness:
    """What devices stated within `window`; `tap` has the good rows of it and of the days around it.

    `keep` is asked to keep what several results are made of.
    """
    told = keep(reports(tap))
    stated, born = statements(told, uplinks), births(told)
    holes = keep(unseen(seen(tap), stated))
    within = window.holds(sf.col("date"))
    # Only of numbers that were not seen: what was given up for want of an answer may have arrived.
    given_up = keep(overlaps(discards(told, born, uplinks), holes.drop("is_before")))
    in_view = _in_view(holes, born, window)
    judged = keep(_judged(stated.where(within), in_view, given_up, watermark))
    return Completeness(
        statements=judged,
        lost=_lost(judged, in_view, given_up),
        given_up=one_by_one(given_up.where(within)),
        # One that is missing may still come, as what it states may.
        gone=_gone(stated, born).where(within & ~watermark.is_open(sf.col("accepted_at_ms"))),
        births=born.where(within),
        not_stored=not_stored(told).where(within),
    )


def _in_view(holes: DataFrame, births: DataFrame, window: Window) -> DataFrame:
    """`holes` without numbers before the first seen one, which a day that was not read may have."""
    if window.day is None:
        return holes.drop("is_before")
    began = births.select(*EPOCH).distinct().withColumn("began", sf.lit(True))
    known = holes.join(began, on=list(EPOCH), how="left")
    return known.where(~sf.col("is_before") | sf.col("began")).drop("is_before", "began")


def _judged(stated: DataFrame, holes: DataFrame, given_up: DataFrame, watermark: Watermark) -> DataFrame:
    spans = stated.select(*STATEMENT, "first", "last")
    unseen_in = _counted(overlaps(holes, spans), "unseen")
    # A number may be given up once for each of two reasons by a store that was restored; it is one number.
    once = given_up.select(*EPOCH, "first", "last").distinct()
    explained_in = _counted(overlaps(once, spans), "explained")
    joined = stated.join(unseen_in, on=list(STATEMENT), how="left")
    joined = joined.join(explained_in, on=list(STATEMENT), how="left")
    # Of the numbers in between, those that the manifest does not count had no route to the cloud.
    elsewhere = length() - sf.col("count")
    found = joined.withColumns({"unseen": _zero("unseen"), "explained": _zero("explained")})
    found = found.withColumn("missing", _at_least_none(sf.col("unseen") - elsewhere))
    found = found.withColumn("explained", sf.least("explained", "missing"))
    return found.withColumns(
        {
            "unexplained": sf.col("missing") - sf.col("explained"),
            "certain": sf.col("unseen") == sf.col("missing"),
            "open": watermark.is_open(sf.col("accepted_at_ms")),
        }
    )


def _counted(ranges: DataFrame, name: str) -> DataFrame:
    return ranges.groupBy(*STATEMENT).agg(sf.sum(length()).alias(name))


def _lost(judged: DataFrame, holes: DataFrame, given_up: DataFrame) -> DataFrame:
    """The lost numbers, with the manifest that states them."""
    lost = judged.where((sf.col("unexplained") > 0) & ~sf.col("open"))
    evidence: list[Column | str] = [
        "date",
        *STATEMENT,
        "accepted_at_ms",
        "file",
        sf.col("unexplained").alias("missing"),
    ]
    nothing = sf.lit(None).cast("long")
    uncertain = lost.where(~sf.col("certain")).select(
        *evidence, nothing.alias("first"), nothing.alias("last")
    )
    certain = lost.where("certain").select(*evidence, "first", "last")
    pieces = one_by_one(overlaps(holes, certain))
    # Under names of their own: both sides come from one table, whose columns Spark would take for the same.
    explained = given_up.select(*(sf.col(name).alias(f"by_{name}") for name in (*EPOCH, "first", "last")))
    same = (sf.col("client_id") == sf.col("by_client_id")) & (sf.col("epoch") == sf.col("by_epoch"))
    inside = (sf.col("first") >= sf.col("by_first")) & (sf.col("last") <= sf.col("by_last"))
    unexplained = pieces.join(explained, on=same & inside, how="left_anti")
    single = unexplained.withColumn("missing", length())
    return single.unionByName(uncertain, allowMissingColumns=True)


def _gone(stated: DataFrame, births: DataFrame) -> DataFrame:
    """Manifests between which another one is missing, `after` the number of the report before.

    A manifest is stored in the commit that closes it, so the next one states it too; likewise the first
    manifest states the report of the store's birth. One that begins later has lost its predecessor.
    """
    links = stated.select(*STATEMENT, "date", "sequence", "first", "accepted_at_ms", "file")
    roots = births.where(sf.col("sequence").isNotNull()).select(*EPOCH, "sequence")
    order = Over.partitionBy(*EPOCH).orderBy("sequence")
    chain = links.unionByName(roots, allowMissingColumns=True)
    chain = chain.withColumn("after", sf.lag("sequence").over(order))
    return chain.where(sf.col("first") > sf.col("after"))


def _zero(name: str) -> Column:
    return sf.coalesce(sf.col(name), sf.lit(0))


def _at_least_none(number: Column) -> Column:
    return sf.greatest(number, sf.lit(0))
