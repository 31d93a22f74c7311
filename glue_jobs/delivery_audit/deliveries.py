"""Expected against recorded: one row for each event and route, with exactly one verdict."""

from __future__ import annotations

from enum import StrEnum

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from eventplane.delivery import DEAD_LETTER_TYPE, Outcome
from eventplane.expiry import BY_CHANNEL
from eventplane.hops import HOP_LIMIT
from eventplane.limits import MAX_HOPS
from glue_jobs.delivery_audit.contracts import ContractHistory
from glue_jobs.delivery_audit.route_filters import EVERY_ROUTE, NO_ROUTE
from glue_jobs.delivery_audit.watermark import Watermark


class Verdict(StrEnum):
    """What the audit says of one event on one route.

    An expected delivery gets one of the first six. An event that no route matches must be recorded as
    `unrouted`; without a record it is `lost` as well: no event vanishes.
    """

    DELIVERED = "delivered"
    DEAD_LETTERED = "dead_lettered"
    EXPIRED = "expired"
    DROPPED = "dropped"
    LOST = "lost"
    PENDING = "pending"
    """Without a record as well, but so young that one may still come (`watermark`)."""
    UNROUTED = "unrouted"
    MISROUTED = "misrouted"
    """Recorded on a route that no contract in force gives."""
    UNEXPLAINED = "unexplained"
    """Recorded as coming from a device, unknown to the tap."""
    INTERNAL = "internal"
    """Entered in the cloud: a service's outbox, or a dead letter that the router made. No tap row, so no
    expectation but the ledger's own word."""


# An event sent twice may fail once: what was delivered is delivered.
_ENDS = (Outcome.DELIVERED, Outcome.DEAD_LETTERED, Outcome.EXPIRED, Outcome.DROPPED)

REPLAY = "replay"
"""The reason of a ledger record that was made by sending an event again; its `entered_at_ms` is that of the
original."""


def deliveries(
    events: DataFrame, decisions: DataFrame, history: ContractHistory, watermark: Watermark
) -> DataFrame:
    """One row for each event and each route that it should have taken or did take.

    `leads` marks one row an event, for counting events; `delivered` counts copies written to the inbox;
    times are Unix milliseconds, `delivered_at_ms` and `entered_at_ms` those of the earliest delivery.
    `outcome` and `reason` are the router's first word on the route, `tap_file` has the event's text,
    `is_routed` says whether the contract gives the event any route.
    """
    cases = _cases(events, decisions, history)
    recorded = sf.array_remove(sf.array_distinct(sf.col("decisions.route")), EVERY_ROUTE)
    by_route = cases.select(
        "*", sf.posexplode(sf.array_union("expected_routes", recorded)).alias("at", "route")
    )
    matching = sf.filter("decisions", lambda each: each["route"].isin(sf.col("route"), sf.lit(EVERY_ROUTE)))
    found = by_route.withColumn("found", matching)
    copies = found.withColumn(
        "copies_out", sf.filter("found", lambda each: each["outcome"] == Outcome.DELIVERED)
    )
    # Structs compare by their first member: the time of the decision.
    first = copies.withColumn("first_out", sf.array_min("copies_out")).withColumn(
        "first_found", sf.array_min("found")
    )
    leads_to = sf.create_map(*(sf.lit(each) for pair in history.destinations.items() for each in pair))
    return first.select(
        sf.coalesce("date", "entered_on").alias("date"),
        "source",
        "id",
        sf.coalesce("type", "ledger_type").alias("type"),
        sf.coalesce("client_id", "ledger_client_id").alias("client_id"),
        "route",
        sf.coalesce("first_found.destination", leads_to[sf.col("route")]).alias("destination"),
        _verdict(watermark).alias("verdict"),
        sf.col("first_found.outcome").alias("outcome"),
        sf.col("first_found.reason").alias("reason"),
        "is_routed",
        sf.exists("copies_out", lambda each: sf.coalesce(each["reason"], sf.lit("")) == REPLAY).alias(
            "replayed"
        ),
        (sf.col("in_tap") & (sf.col("at") == 0)).alias("leads"),
        "copies",
        sf.size("copies_out").alias("delivered"),
        sf.coalesce("first_found.priority", sf.element_at("decisions", 1)["priority"]).alias("priority"),
        sf.coalesce("first_found.contract_version", sf.element_at("versions", 1)).alias("contract_version"),
        "recorded_at_ms",
        "accepted_at_ms",
        "archived_at_ms",
        "epoch",
        "sequence",
        sf.coalesce("order_key", "source").alias("order_key"),
        sf.col("first_out.entered_at_ms").alias("entered_at_ms"),
        sf.col("first_out.decided_at_ms").alias("delivered_at_ms"),
        "dead_letter_reason",
        sf.coalesce("first_found.file", "file").alias("file"),
        sf.col("file").alias("tap_file"),
    )


def _cases(events: DataFrame, decisions: DataFrame, history: ContractHistory) -> DataFrame:
    """Events and what was decided on them, side by side; `expected_routes` by the contracts in force."""
    none_taken = sf.array().cast("array<string>")
    none_made = sf.array().cast(decisions.schema["decisions"].dataType)
    joined = events.join(decisions, on=["source", "id"], how="full")
    joined = joined.withColumn("in_tap", sf.col("copies").isNotNull())
    joined = joined.withColumn("decisions", sf.coalesce("decisions", none_made))
    named = sf.array_distinct(sf.col("decisions.contract_version"))
    guessed = sf.array(history.in_force_at(sf.col("accepted_at_ms")))
    joined = joined.withColumn("versions", sf.when(sf.size(named) > 0, named).otherwise(guessed))
    # Copies of an event may have met routers of two versions: then the routes of both are expected.
    routes = sf.array_distinct(
        sf.flatten(sf.transform("versions", lambda version: sf.col("routes")[version]))
    )
    joined = joined.withColumn("due", sf.when(sf.col("in_tap"), routes).otherwise(none_taken))
    owed = sf.array_remove("due", NO_ROUTE)
    outcomes = sf.col("decisions.outcome")
    # What was delivered though no route takes it has strayed. It has not vanished as well.
    strayed = sf.array_contains(outcomes, Outcome.DELIVERED) & ~sf.array_contains(outcomes, Outcome.UNROUTED)
    return joined.withColumns(
        {
            "expected_routes": sf.when(strayed, owed).otherwise(sf.col("due")),
            "is_routed": sf.size(owed) > 0,
        }
    )


def _verdict(watermark: Watermark) -> Column:
    outcomes = sf.col("found.outcome")
    expected = sf.array_contains("expected_routes", sf.col("route"))
    internal = ~sf.col("in_tap") & (~sf.col("from_device") | (sf.col("ledger_type") == DEAD_LETTER_TYPE))
    verdict = sf.when(internal, sf.lit(Verdict.INTERNAL))
    # The tap's own record may be on its way too.
    young = watermark.is_open(sf.col("ledger_entered_at_ms"))
    verdict = verdict.when(~sf.col("in_tap") & young, sf.lit(Verdict.PENDING))
    verdict = verdict.when(~sf.col("in_tap"), sf.lit(Verdict.UNEXPLAINED))
    verdict = verdict.when(~expected, sf.lit(Verdict.MISROUTED))
    for outcome in _ENDS:
        recorded = _rightly_expired() if outcome is Outcome.EXPIRED else _rightly_ended(outcome)
        verdict = verdict.when(recorded, sf.lit(Verdict(outcome)))
    unrouted = (sf.col("route") == NO_ROUTE) & sf.array_contains(outcomes, Outcome.UNROUTED)
    verdict = verdict.when(unrouted, sf.lit(Verdict.UNROUTED))
    open_yet = watermark.is_open(sf.col("accepted_at_ms")) & sf.col("first_found").isNull()
    return verdict.when(open_yet, sf.lit(Verdict.PENDING)).otherwise(sf.lit(Verdict.LOST))


def _rightly_expired() -> Column:
    """Whether a router recorded the event as expired and it had: what can be known is not taken on trust."""

    def holds(each: Column) -> Column:
        by_itself = each["decided_at_ms"] >= sf.col("expires_at_ms")
        age_ms = each["decided_at_ms"] - sf.col("accepted_at_ms")
        by_channel = (each["reason"] == BY_CHANNEL) & (age_ms >= each["worth_ms"])
        either = sf.coalesce(by_itself, sf.lit(False)) | sf.coalesce(by_channel, sf.lit(False))
        return (each["outcome"] == Outcome.EXPIRED) & either

    return sf.exists("found", holds)


def _rightly_ended(outcome: Outcome) -> Column:
    """Whether a router recorded the outcome, and for a loop only if the event really came round so often."""
    came_round = sf.coalesce(sf.col("hops"), sf.lit(0)) >= MAX_HOPS
    return sf.exists(
        "found",
        lambda each: (
            (each["outcome"] == outcome)
            & ((sf.coalesce(each["reason"], sf.lit("")) != HOP_LIMIT) | came_round)
        ),
    )
