"""The rows of tap, ledger and handovers in one form, so that one shuffle brings together what each says.

A row speaks of a `name`, the digest of the event's sender, source and id. A dead letter's id is that digest
of the event it is about (`eventplane.delivery.letter_id`), so its own record can vouch for the event.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from eventplane.delivery import LETTER_ID_DIGITS
from glue_jobs.delivery_audit.quarantine import line

WITNESS = (
    "name",
    "within",
    "sender",
    "source",
    "id",
    "copy",
    "item",
    "decision",
    "handover",
    "vouches",
    "bad",
)
"""`within` tells rows of the window from those beside it. One of `copy` to `bad` has a value, the others are
null; `bad` is a row that cannot be read."""

CASE = ["name", "within"]


def name_of(sender: Column, source: Column, id: Column) -> Column:
    """The name of an event: `letter_id` of the same three."""
    text = sf.concat_ws("\n", sf.coalesce(sender, sf.lit("")), source, id)
    return sf.substring(sf.sha2(text, 256), 1, LETTER_ID_DIGITS)


def item_name(*members: str) -> Column:
    """The name of an item that is no event; each has a mark that no digest has."""
    return sf.concat_ws("\n", sf.lit("item"), *members)


def witness(
    rows: DataFrame, *, archive: str, members: Sequence[str], within: Column, name: Column, **says: Column
) -> DataFrame:
    """`rows`, which have a `fault` or null, as `WITNESS` columns; those beside the window say nothing bad."""
    bad = sf.struct(
        "date",
        sf.lit(archive).alias("archive"),
        sf.col("fault").alias("reason"),
        sf.col("file").alias("archive_file"),
        line(*members).alias("text"),
    )
    faulty = sf.col("fault").isNotNull()
    # Bad rows have no name; each stays by itself, wherever it is.
    own = sf.concat_ws("\n", sf.lit(archive), sf.monotonically_increasing_id())
    made = {
        "name": sf.when(faulty, own).otherwise(name),
        "within": within,
        "bad": sf.when(faulty, bad),
        **says,
    }
    return rows.select(*(column.alias(each) for each, column in made.items()))


def cases(*archives: DataFrame) -> DataFrame:
    """One row for each name: `copies`, `items`, `decisions`, `handovers` as arrays, the rest as it was."""
    rows = reduce(lambda one, two: one.unionByName(two, allowMissingColumns=True), archives)
    together = rows.repartition("name").groupBy(*CASE)
    grouped = together.agg(
        sf.max("sender").alias("sender"),
        sf.max("source").alias("source"),
        sf.max("id").alias("id"),
        sf.collect_list("copy").alias("copies"),
        sf.collect_list("item").alias("items"),
        sf.collect_list("decision").alias("decisions"),
        sf.collect_list("handover").alias("handovers"),
        sf.max("vouches").alias("vouched"),
        sf.max("bad").alias("bad"),
    )
    return grouped.withColumn("decisions", _once())


def _once() -> Column:
    """The decisions without rows that lie in two objects: the ledger is written at least once.

    Equal rows of one object are copies of an event that came in one frame.
    """

    def lies_before(each: Column) -> Column:
        return sf.exists(
            "decisions", lambda other: (other["row"] == each["row"]) & (other["file"] < each["file"])
        )

    return sf.filter("decisions", lambda each: ~lies_before(each))
