"""Expected against recorded: one row for each event and route, with exactly one verdict."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from eventplane.delivery import Outcome
from eventplane.ledger import SENT_BEFORE, Basis
from glue_jobs.delivery_audit.contracts import ContractHistory
from glue_jobs.delivery_audit.expectations import with_expectations
from glue_jobs.delivery_audit.handovers import consumption, strangers
from glue_jobs.delivery_audit.refusals import recorded_items
from glue_jobs.delivery_audit.route_filters import EVERY_ROUTE
from glue_jobs.delivery_audit.verdicts import REPLAY, UNBACKED, verdict
from glue_jobs.delivery_audit.watermark import Watermark
from glue_jobs.delivery_audit.window import day_of


def deliveries(cases: DataFrame, history: ContractHistory, watermark: Watermark) -> DataFrame:
    """One row for each event and each route that it should have taken or did take.

    A case without any (a bad row, an item, a copy beside the window) has one row with `route` null. `leads`
    marks one row a case, which alone has what is not of a route: `tap_rows`, `ledger_rows`, `copies` and
    their `numbers`, `report`, `items`, `bad`, `strangers`. `in_tap` says whether it is an event of the
    window that the tap has, `opens_inbox` whether a delivery is the event's first to its `destination`,
    `may_expire` whether the event has an `expirytime`, as far as the tap knows;
    `delivered` counts copies written to the inbox; times are Unix milliseconds, `delivered_at_ms` and
    `entered_at_ms` those of the earliest delivery. `outcome` and `reason` are the router's first word on the
    route, `is_routed` says whether the contract gives the event any route, `consumption` is of its last hop.
    """
    known = with_expectations(cases, history)
    recorded = sf.transform("decisions", lambda each: each["route"])
    routes = sf.array_remove(sf.array_distinct(sf.concat("expected", recorded)), EVERY_ROUTE)
    # An item's decisions are judged by their number.
    known = known.withColumn("routes", sf.when(sf.col("source").isNotNull() & sf.col("within"), routes))
    by_route = known.select("*", sf.posexplode_outer("routes").alias("at", "route"))
    matching = sf.filter("decisions", lambda each: each["route"].isin(sf.col("route"), sf.lit(EVERY_ROUTE)))
    found = by_route.withColumn("found", sf.when(sf.col("route").isNotNull(), matching))
    found = found.withColumn("out", sf.filter("found", lambda each: each["outcome"] == Outcome.DELIVERED))
    # Structs compare by their first member: the time of the decision.
    found = found.withColumn("first_out", sf.array_min("out")).withColumn(
        "first_found", sf.array_min("found")
    )
    leads_to = sf.create_map(*(sf.lit(each) for pair in history.destinations.items() for each in pair))
    destination = sf.coalesce("first_out.destination", "first_found.destination", leads_to[sf.col("route")])
    found = found.withColumn("destination", destination).withColumn("opens_inbox", _opens_inbox())
    leads, first = sf.coalesce(sf.col("at"), sf.lit(0)) == 0, sf.col("first")

    def once(column: Column) -> Column:
        return sf.when(leads, column)

    return found.select(
        "within",
        sf.coalesce(
            day_of(first["accepted_at_ms"]),
            day_of(sf.array_min(sf.transform("items", lambda each: each["accepted_at_ms"]))),
            day_of(sf.array_min(sf.transform("decisions", lambda each: each["entered_at_ms"]))),
            "bad.date",
        ).alias("date"),
        "sender",
        "source",
        "id",
        sf.coalesce(first["type"], sf.get("decisions", sf.lit(0))["type"]).alias("type"),
        sf.coalesce(first["client_id"], sf.get("decisions", sf.lit(0))["client_id"]).alias("client_id"),
        "route",
        "destination",
        sf.when(sf.col("route").isNotNull(), verdict(watermark)).alias("verdict"),
        sf.col("first_found.outcome").alias("outcome"),
        sf.col("first_found.reason").alias("reason"),
        "is_routed",
        (sf.col("was_replayed") & sf.exists("out", lambda each: each["reason"].eqNullSafe(REPLAY))).alias(
            "replayed"
        ),
        leads.alias("leads"),
        "in_tap",
        "opens_inbox",
        first["expires_at_ms"].isNotNull().alias("may_expire"),
        sf.when(sf.col("in_tap"), sf.col("came")).alias("copies"),
        sf.greatest(_copies_sent(), sf.lit(0)).alias("delivered"),
        sf.coalesce("first_found.priority", sf.get("decisions", sf.lit(0))["priority"]).alias("priority"),
        sf.coalesce("first_found.contract_version", sf.get("versions", sf.lit(0))).alias("contract_version"),
        first["recorded_at_ms"].alias("recorded_at_ms"),
        first["accepted_at_ms"].alias("accepted_at_ms"),
        first["archived_at_ms"].alias("archived_at_ms"),
        first["epoch"].alias("epoch"),
        first["sequence"].alias("sequence"),
        first["partition"].alias("partition"),
        sf.col("first_out.entered_at_ms").alias("entered_at_ms"),
        sf.col("first_out.decided_at_ms").alias("delivered_at_ms"),
        first["dead_letter_reason"].alias("dead_letter_reason"),
        sf.coalesce("first_found.file", first["file"]).alias("file"),
        first["file"].alias("tap_file"),
        sf.when(sf.size("out") > 0, consumption(history, watermark)).alias("consumption"),
        once(sf.when(sf.size("copies") > 1, _numbers())).alias("numbers"),
        once(first["report"]).alias("report"),
        once(_rows(sf.size("copies") + sf.size("items"), "tap")).alias("tap_rows"),
        once(_rows(sf.size("decisions"), "ledger")).alias("ledger_rows"),
        once(sf.array_min(sf.transform("decisions", lambda each: each["decided_at_ms"]))).alias(
            "decided_at_ms"
        ),
        sf.when(sf.col("died"), _letters(leads)).alias("letters"),
        _is_any("is_forbidden").alias("is_forbidden"),
        _is_any("is_stale").alias("is_stale"),
        sf.array_max(sf.transform("found", lambda each: each["clock_skew_ms"])).alias("clock_skew_ms"),
        once(_is_unconfirmed(watermark)).alias("is_unconfirmed"),
        once(recorded_items()).alias("items"),
        once(strangers()).alias("strangers"),
        "bad",
    )


def _numbers() -> Column:
    """Under which numbers the copies came: a service that sends again what it stored has two."""
    return sf.array_distinct(
        sf.transform(
            "copies",
            lambda each: sf.struct(*(each[name].alias(name) for name in ("client_id", "epoch", "sequence"))),
        )
    )


def _rows(good: Column, archive: str) -> Column:
    return good + sf.when(sf.col("bad.archive") == archive, 1).otherwise(0)


def _letters(leads: Column) -> Column:
    """The reasons of the dead letters about the event that the ledger speaks of, one a route."""
    dead = sf.filter("decisions", lambda each: each["outcome"].isin(Outcome.DEAD_LETTERED, UNBACKED))

    def reason(route: Column | str) -> Column:
        there = sf.filter(dead, lambda each: each["route"] == route)
        return sf.array_min(sf.transform(there, lambda each: sf.coalesce(each["reason"], sf.lit(""))))

    of_all = sf.when(leads & sf.col("source").isNotNull(), reason(sf.lit(EVERY_ROUTE)))
    return sf.filter(sf.array(reason(sf.col("route")), of_all), lambda each: each.isNotNull())


def _copies_sent() -> Column:
    """How many copies of the event were written to the inbox on this route."""
    # Of one that was sent early, the contract in force only says that it was right to be.
    return sf.size(sf.filter("out", lambda each: ~each["reason"].eqNullSafe(SENT_BEFORE)))


def _is_any(what: str) -> Column:
    """Whether one of the route's decisions is so."""
    return sf.coalesce(sf.exists("found", lambda each: each[what]), sf.lit(False))


def _is_unconfirmed(watermark: Watermark) -> Column:
    """Whether a router decided before it saw the contract in force, and none by that one since."""
    last_ms = sf.array_max(sf.transform("early", lambda each: each["decided_at_ms"]))
    confirmed = sf.exists(
        "decisions", lambda each: (each["basis"] == str(Basis.IN_FORCE)) & (each["decided_at_ms"] >= last_ms)
    )
    return (sf.size("early") > 0) & ~confirmed & ~watermark.is_open(last_ms)


def _opens_inbox() -> Column:
    """Whether no route before this one led the event to the same inbox."""
    before = sf.slice("routes", 1, sf.greatest(sf.col("at"), sf.lit(0)))
    earlier = sf.exists(
        "decisions",
        lambda each: (
            (each["outcome"] == Outcome.DELIVERED)
            & (each["destination"] == sf.col("destination"))
            & sf.array_contains(before, each["route"])
        ),
    )
    return (sf.size("out") > 0) & sf.when(sf.col("at") == 0, sf.lit(True)).otherwise(~earlier)
