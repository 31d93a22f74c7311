"""The ledger's rows, and from them the decisions on each event."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from eventplane.contract import Channel, Place
from eventplane.delivery import Outcome
from glue_jobs.delivery_audit.contracts import ContractHistory
from glue_jobs.delivery_audit.quarantine import any_missing, fault, line
from glue_jobs.delivery_audit.refused_events import believed
from glue_jobs.delivery_audit.route_filters import EVERY_ROUTE, NO_ROUTE
from glue_jobs.delivery_audit.schema import CORRUPT, LEDGER_ROW
from glue_jobs.delivery_audit.window import Window, day_of, is_time


def is_no_event() -> Column:
    """Of a ledger row: whether it is about an item that was refused, and so has no names."""
    return sf.col("id") == ""


def ledger_rows(raw: DataFrame, window: Window) -> DataFrame:
    """The ledger's rows of the window, each with its `fault` or null. A row belongs to the day of entry."""
    outcome = sf.col("outcome")
    faults = fault(
        {
            "missing_member": any_missing(
                "decided_at_ms", "entered_at_ms", "entered_by", "contract_version", "source", "id", "outcome"
            ),
            "impossible_time": ~(is_time(sf.col("decided_at_ms")) & is_time(sf.col("entered_at_ms"))),
            "unknown_outcome": ~outcome.isin([str(each) for each in Outcome]),
            "delivered_nowhere": (outcome == Outcome.DELIVERED) & any_missing("route", "destination"),
        }
    )
    members = [name for name in LEDGER_ROW.names if name != CORRUPT]
    no_route = sf.when(outcome == Outcome.UNROUTED, sf.lit(NO_ROUTE)).otherwise(sf.lit(EVERY_ROUTE))
    rows = raw.select(
        *(name for name in members if name != "route"),
        sf.coalesce("route", no_route).alias("route"),
        "date",
        "file",
        faults.alias("fault"),
        sf.when(faults.isNotNull(), line(*members)).alias("line"),
    )
    entered_on = sf.when(sf.col("fault").isNull(), day_of(sf.col("entered_at_ms"))).otherwise(sf.col("date"))
    return rows.withColumn("date", entered_on).where(window.holds(sf.col("date")))


def decisions(ledger: DataFrame, history: ContractHistory) -> DataFrame:
    """What good ledger rows say of each event, one row for each `source` and `id`.

    `decisions` is an array of structs, of which the first member is `decided_at_ms`.
    """
    decision = sf.struct(
        "decided_at_ms",
        "entered_at_ms",
        _route_taken(history).alias("route"),
        "destination",
        "outcome",
        "reason",
        _worth_ms(history).alias("worth_ms"),
        "priority",
        "contract_version",
        "file",
    )
    return (
        believed(ledger.where(~is_no_event()), history)
        .groupBy("source", "id")
        .agg(
            sf.collect_list(decision).alias("decisions"),
            sf.max(sf.col("entered_by").isin(history.uplinks)).alias("from_device"),
            sf.min("date").alias("entered_on"),
            sf.min("entered_at_ms").alias("ledger_entered_at_ms"),
            sf.min("type").alias("ledger_type"),
            sf.min("client_id").alias("ledger_client_id"),
        )
    )


def _route_taken(history: ContractHistory) -> Column:
    """The row's route; one of another name where it led elsewhere than the row's own contract says.

    Such a delivery is one on a route that no contract gives, and the route it claims is still owed.
    """
    leads_to = {
        f"{contract.version} {route.name}": route.destination
        for contract in history.contracts
        for route in contract.routes
    }
    pairs = sf.create_map(*(sf.lit(each) for pair in leads_to.items() for each in pair))
    declared = pairs[sf.concat_ws(" ", "contract_version", "route")]
    elsewhere = (sf.col("outcome") == Outcome.DELIVERED) & (sf.col("destination") != declared)
    return sf.when(elsewhere, sf.concat_ws(" -> ", "route", "destination")).otherwise(sf.col("route"))


def _worth_ms(history: ContractHistory) -> Column:
    """How long the row's contract lets an event on the row's route be worth delivering, null for ever."""
    bounds = {
        f"{contract.version} {route.name}": 1_000 * bound
        for contract in history.contracts
        for route in contract.routes_at(Place.CLOUD)
        if (bound := _strictest(contract.device.outbox, contract.channel(route.destination)))
    }
    if not bounds:
        return sf.lit(None).cast("long")
    pairs = sf.create_map(*(sf.lit(each) for pair in bounds.items() for each in pair))
    return pairs[sf.concat_ws(" ", "contract_version", "route")].cast("long")


def _strictest(*channels: Channel) -> int | None:
    return min((each.expiry_s for each in channels if each.expiry_s is not None), default=None)


def by_destination(ledger: DataFrame) -> DataFrame:
    """What was written to each inbox, by the ledger alone: what its consumer must have received.

    `delivered_unique` counts events, `delivered_total` messages.
    """
    delivered = ledger.where(sf.col("outcome") == Outcome.DELIVERED)
    counted = delivered.groupBy("destination").agg(
        sf.countDistinct("source", "id").alias("delivered_unique"),
        sf.count(sf.lit(1)).alias("delivered_total"),
    )
    return counted.orderBy("destination")
