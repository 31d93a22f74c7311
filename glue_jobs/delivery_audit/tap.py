"""The tap's rows with the attributes of their events read, and from them the events: one row each."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from eventplane.hops import ROUTER_HOPS
from glue_jobs.delivery_audit.attributes import Attributes, with_attributes
from glue_jobs.delivery_audit.contracts import ContractHistory
from glue_jobs.delivery_audit.device_reports import report_of
from glue_jobs.delivery_audit.quarantine import any_missing, fault, line
from glue_jobs.delivery_audit.route_filters import cloud_routes
from glue_jobs.delivery_audit.window import Window, day_of, is_time

READ_ATTRIBUTES = (
    "source",
    "id",
    "type",
    "recordedtime",
    "expirytime",
    "deadletterreason",
    "deviceepoch",
    "devicesequence",
    "partitionkey",
    ROUTER_HOPS,
)
"""What the audit itself wants to know of an event, besides what the filters look at."""


def tap_rows(raw: DataFrame, history: ContractHistory, window: Window) -> DataFrame:
    """The tap's rows of the window, each with its `fault` or null.

    `routes` is a map from contract version to the routes that the event takes by it; `refused` is the SHA-256
    of an item that is no event; `sequence` is null where a simple client sends without the device's numbers;
    `report` is the data of a device's report; `order_key` is within what a FIFO queue keeps order.
    """
    filters = [route.filter for contract in history.contracts for route in contract.routes]
    parsed, attributes = with_attributes(raw, filters, also=READ_ATTRIBUTES)
    texts = attributes.texts
    rows = parsed.select(
        "date",
        "file",
        "client_id",
        "accepted_at_ms",
        "archived_at_ms",
        "message_id",
        "index",
        texts["source"].alias("source"),
        texts["id"].alias("id"),
        texts["type"].alias("type"),
        texts["deadletterreason"].alias("dead_letter_reason"),
        texts["deviceepoch"].alias("epoch"),
        _sequence(texts["devicesequence"]).alias("sequence"),
        _unix_ms(texts["recordedtime"]).alias("recorded_at_ms"),
        _expires_at_ms(texts["expirytime"]).alias("expires_at_ms"),
        texts[ROUTER_HOPS].cast("int").alias("hops"),
        sf.coalesce(texts["partitionkey"], texts["source"]).alias("order_key"),
        report_of(sf.col("event"), texts["type"]).alias("report"),
        sf.when(sf.col("event").isNotNull(), _routes(history, attributes)).alias("routes"),
        "refusal",
        sf.when(sf.col("refusal").isNotNull(), sf.sha2("original_base64", 256)).alias("refused"),
        _fault(texts).alias("fault"),
        sf.when(_fault(texts).isNotNull(), _line()).alias("line"),
    )
    accepted_on = sf.when(sf.col("fault").isNull(), day_of(sf.col("accepted_at_ms"))).otherwise(
        sf.col("date")
    )
    return rows.withColumn("date", accepted_on).where(window.holds(sf.col("date")))


def events(tap: DataFrame) -> DataFrame:
    """The events of good tap rows, one row for each `source` and `id`: the copy that was accepted first.

    Copies come from delivery at least once, on the device's way up or the tap's; they expect nothing more.
    """
    first = sf.min_by(
        sf.struct(
            "date",
            "file",
            "client_id",
            "accepted_at_ms",
            "archived_at_ms",
            "type",
            "epoch",
            "sequence",
            "order_key",
            "dead_letter_reason",
            "recorded_at_ms",
            "expires_at_ms",
            "hops",
            "routes",
        ),
        sf.struct("accepted_at_ms", "message_id", "index"),
    )
    # The same place in the same message is one copy, which the tap's queue gave twice.
    copies = sf.count_distinct("message_id", "index")
    grouped = tap.where(sf.col("refusal").isNull()).groupBy("source", "id")
    return grouped.agg(first.alias("first"), copies.alias("copies")).select(
        "source", "id", "copies", "first.*"
    )


def _fault(texts: Column) -> Column:
    event, refusal = sf.col("event"), sf.col("refusal")
    identity = texts["source"].isNull() | texts["id"].isNull() | texts["type"].isNull()
    return fault(
        {
            "missing_member": any_missing("accepted_at_ms", "client_id", "message_id", "index"),
            "impossible_time": ~is_time(sf.col("accepted_at_ms")),
            "neither_event_nor_refusal": event.isNull() == refusal.isNull(),
            # Without its bytes it would not be counted, and so never be missed.
            "refusal_without_bytes": refusal.isNotNull() & sf.col("original_base64").isNull(),
            "event_without_identity": event.isNotNull() & identity,
        }
    )


def _line() -> Column:
    return line(
        "accepted_at_ms", "client_id", "topic", "message_id", "index", "event", "original_base64", "refusal"
    )


def _routes(history: ContractHistory, attributes: Attributes) -> Column:
    pairs = ((sf.lit(each.version), cloud_routes(each, attributes)) for each in history.contracts)
    return sf.create_map(*(column for pair in pairs for column in pair))


def _sequence(digits: Column) -> Column:
    return sf.when(digits.rlike(r"^[0-9]{1,18}$"), digits.cast("long"))


def _expires_at_ms(timestamp: Column) -> Column:
    # What Spark cannot read though the router can (a leap second) counts as past: the router's word stands.
    return sf.when(timestamp.isNotNull(), sf.coalesce(_unix_ms(timestamp), sf.lit(0)))


def _unix_ms(timestamp: Column) -> Column:
    # RFC 3339 allows a small t and z; Spark reads capitals only.
    return sf.unix_millis(sf.try_to_timestamp(sf.upper(timestamp)))
