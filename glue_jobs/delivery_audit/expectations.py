"""What is to be known of an event before its routes are judged: which are due, and whom to believe."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from eventplane.delivery import Outcome
from eventplane.ledger import Basis
from glue_jobs.delivery_audit.contracts import ContractHistory
from glue_jobs.delivery_audit.interest import parted
from glue_jobs.delivery_audit.route_filters import NO_ROUTE
from glue_jobs.delivery_audit.verdicts import REPLAY, UNBACKED


def with_expectations(cases: DataFrame, history: ContractHistory) -> DataFrame:
    """Cases with what is to be known of all their routes; `expected` are those of the contracts in force.

    Of these `forwarded` had to reach an inbox, and `unwanted` had not.
    """
    cases = cases.withColumns(
        {
            # The copy accepted first; the others come from delivery at least once, and expect no more.
            "first": sf.array_min("copies"),
            "came": sf.when(sf.size("copies") < 2, sf.size("copies")).otherwise(sf.size(_places())),
            "died": sf.exists("decisions", lambda each: each["outcome"] == Outcome.DEAD_LETTERED),
            "was_replayed": sf.exists("decisions", lambda each: each["reason"].eqNullSafe(REPLAY)),
            "named": _versions(_by_basis(Basis.IN_FORCE)),
            "early": _by_basis(Basis.BUNDLED),
        }
    )
    cases = cases.withColumns(
        {
            "decisions": sf.when(sf.col("died"), _believed()).otherwise(sf.col("decisions")),
            "in_tap": sf.col("within") & (sf.size("copies") > 0),
            "versions": sf.when(sf.size("named") > 0, sf.col("named"))
            .when(sf.size("early") > 0, _versions(sf.col("early")))
            .otherwise(sf.array(history.in_force_at(sf.col("first.accepted_at_ms")))),
        }
    )
    # Copies of an event may have met routers of two versions: then the routes of both are expected.
    many = _routes_by_any(history, sf.col("versions"))
    one = sf.split(_routes_by(history, sf.get("versions", sf.lit(0))), " ")
    due = sf.when(sf.col("in_tap"), sf.when(sf.size("versions") == 1, one).otherwise(many))
    cases = cases.withColumn("due", sf.coalesce(due, sf.array().cast("array<string>")))
    # What went out before the contract in force was known may go where that one does not lead, and need not.
    went = sf.transform("early", lambda each: each["route"])
    allowed = sf.array_intersect(_routes_by_any(history, _versions(sf.col("early"))), went)
    is_early = sf.col("in_tap") & (sf.size("early") > 0)
    cases = cases.withColumn(
        "due", sf.when(is_early, sf.array_union("due", allowed)).otherwise(sf.col("due"))
    )
    forwarded, unwanted = parted(sf.col("due"), history.contracts)
    cases = cases.withColumns({"unwanted": unwanted, "forwarded": forwarded})
    cases = cases.withColumn("due", sf.array_union("forwarded", "unwanted"))
    owed = sf.array_remove("due", NO_ROUTE)
    outcomes = sf.transform("decisions", lambda each: each["outcome"])
    # What was delivered though no route takes it has strayed. It has not vanished as well.
    strayed = sf.array_contains(outcomes, Outcome.DELIVERED) & ~sf.array_contains(outcomes, Outcome.UNROUTED)
    kept = sf.when(sf.array_contains("due", NO_ROUTE) & strayed, owed).otherwise(sf.col("due"))
    return cases.withColumns({"expected": kept, "is_routed": sf.size(owed) > 0})


def _by_basis(basis: Basis) -> Column:
    return sf.filter("decisions", lambda each: each["basis"] == str(basis))


def _versions(decisions: Column) -> Column:
    return sf.array_distinct(sf.transform(decisions, lambda each: each["contract_version"]))


def _routes_by_any(history: ContractHistory, versions: Column) -> Column:
    by_version = sf.transform(versions, lambda version: sf.split(_routes_by(history, version), " "))
    return sf.array_distinct(sf.flatten(by_version))


def _routes_by(history: ContractHistory, version: Column) -> Column:
    """The names of the routes that the event takes by a contract's version, parted by spaces."""
    taken = sf.col("first.routes")
    held = enumerate(history.contracts)
    return reduce(
        lambda others, each: sf.when(version == each[1].version, sf.get(taken, sf.lit(each[0]))).otherwise(
            others
        ),
        held,
        sf.lit(None).cast("string"),
    )


def _places() -> Column:
    # The same place in the same message is one copy, which the tap's queue gave twice.
    return sf.array_distinct(
        sf.transform("copies", lambda each: sf.struct(each["message_id"], each["index"]))
    )


def _believed() -> Column:
    """The decisions, in which what is not to be believed has the outcome `UNBACKED`.

    A dead-lettered event has a letter that was delivered to somebody.
    """

    def judged(each: Column) -> Column:
        unbacked = (each["outcome"] == Outcome.DEAD_LETTERED) & ~(
            sf.coalesce("vouched", sf.lit(False)) & each["is_refusable"]
        )
        return each.withField("outcome", sf.when(unbacked, sf.lit(UNBACKED)).otherwise(each["outcome"]))

    return sf.transform("decisions", judged)
