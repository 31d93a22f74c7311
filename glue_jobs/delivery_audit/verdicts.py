"""What the audit says of one event on one route."""

from __future__ import annotations

from enum import StrEnum
from functools import reduce
from operator import and_
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as sf

from eventplane.delivery import DEAD_LETTER_TYPE, Outcome
from eventplane.envelope import RESERVED_ATTRIBUTE, TOO_LARGE
from eventplane.expiry import BY_CHANNEL
from eventplane.guarantee import DROP_REASONS
from eventplane.hops import HOP_LIMIT
from eventplane.limits import MAX_HOPS
from glue_jobs.delivery_audit.route_filters import NO_ROUTE
from glue_jobs.delivery_audit.watermark import Watermark


class Verdict(StrEnum):
    """Exactly one for each event and route.

    An expected delivery gets one of the first six, one that its reader does not want the seventh. An event
    that no route matches must be recorded as `unrouted`; without a record it is `lost`: no event vanishes.
    """

    DELIVERED = "delivered"
    DEAD_LETTERED = "dead_lettered"
    EXPIRED = "expired"
    DROPPED = "dropped"
    LOST = "lost"
    PENDING = "pending"
    """Without a record as well, but so young that one may still come (`watermark`)."""
    NO_INTEREST = "no_interest"
    """Not forwarded, because the contract in force says that its reader does not handle such events."""
    UNROUTED = "unrouted"
    MISROUTED = "misrouted"
    """Recorded on a route that no contract in force gives."""
    UNEXPLAINED = "unexplained"
    """Recorded as coming from a device, unknown to the tap."""
    INTERNAL = "internal"
    """Entered in the cloud: a service's outbox, or a dead letter that the router made. No tap row, so no
    expectation but the ledger's own word."""


EXPECTED = (
    Verdict.DELIVERED,
    Verdict.DEAD_LETTERED,
    Verdict.EXPIRED,
    Verdict.DROPPED,
    Verdict.LOST,
    Verdict.PENDING,
)
"""The ends of an expected delivery."""

REPLAY = "replay"
"""The reason of a ledger record that was made by sending an event again; its `entered_at_ms` is that of the
original."""

# An event sent twice may fail once: what was delivered is delivered.
_ENDS: Final = (Outcome.DELIVERED, Outcome.DEAD_LETTERED, Outcome.EXPIRED, Outcome.DROPPED)

UNBACKED = "(unbacked)"
"""Stands for the outcome of a decision that says `dead_lettered` and has nothing to show for it."""


def verdict(watermark: Watermark) -> Column:
    """The verdict on a row of `deliveries`, with what `expectations` knows of its event."""
    entered_at_ms = sf.array_min(sf.transform("decisions", lambda each: each["entered_at_ms"]))
    from_device = sf.exists("decisions", lambda each: each["from_device"])
    letter = sf.get("decisions", sf.lit(0))["type"] == DEAD_LETTER_TYPE
    # The tap's own record may be on its way too.
    unknown = (
        sf.when(~from_device | letter, sf.lit(Verdict.INTERNAL))
        .when(watermark.is_open(entered_at_ms), sf.lit(Verdict.PENDING))
        .otherwise(sf.lit(Verdict.UNEXPLAINED))
    )
    expected = sf.array_contains("expected", sf.col("route"))
    judged = sf.when(~sf.col("in_tap"), unknown).when(~expected, sf.lit(Verdict.MISROUTED))
    went = sf.exists("found", lambda each: each["outcome"] == Outcome.DELIVERED)
    forwarded = sf.array_contains("forwarded", sf.col("route"))
    judged = judged.when(went & ~forwarded, sf.lit(Verdict.MISROUTED))
    for outcome in _ENDS:
        recorded = _rightly_expired() if outcome is Outcome.EXPIRED else _rightly_ended(outcome)
        judged = judged.when(recorded, sf.lit(Verdict(outcome)))
    held_back = sf.exists("found", lambda each: each["outcome"] == Outcome.NO_INTEREST)
    unwanted = sf.array_contains("unwanted", sf.col("route"))
    judged = judged.when(held_back & unwanted, sf.lit(Verdict.NO_INTEREST))
    unrouted = sf.exists("found", lambda each: each["outcome"] == Outcome.UNROUTED)
    judged = judged.when((sf.col("route") == NO_ROUTE) & unrouted, sf.lit(Verdict.UNROUTED))
    open_yet = watermark.is_open(sf.col("first.accepted_at_ms")) & sf.col("first_found").isNull()
    return judged.when(open_yet, sf.lit(Verdict.PENDING)).otherwise(sf.lit(Verdict.LOST))


def _rightly_expired() -> Column:
    """Whether a router recorded the event as expired and it had: what can be known is not taken on trust."""

    def holds(each: Column) -> Column:
        # A router whose clock is ahead expires what the queue's clock would have let pass.
        decided_at_ms = sf.least(each["decided_at_ms"], each["by_queue_clock_ms"])
        by_itself = decided_at_ms >= sf.col("first.expires_at_ms")
        age_ms = decided_at_ms - sf.col("first.accepted_at_ms")
        by_channel = (each["reason"] == BY_CHANNEL) & (age_ms >= each["worth_ms"])
        either = sf.coalesce(by_itself, sf.lit(False)) | sf.coalesce(by_channel, sf.lit(False))
        return (each["outcome"] == Outcome.EXPIRED) & either

    return sf.exists("found", holds)


def _rightly_ended(outcome: Outcome) -> Column:
    """Whether a router recorded the outcome, and the tap and the contract bear its reason out."""
    shown = {
        HOP_LIMIT: sf.coalesce(sf.col("first.hops"), sf.lit(0)) >= MAX_HOPS,
        RESERVED_ATTRIBUTE: sf.coalesce(sf.col("first.names_sender"), sf.lit(False)),
        TOO_LARGE: sf.coalesce(sf.col("first.is_too_large"), sf.lit(False)),
    }

    def holds(each: Column) -> Column:
        by_reason = {**shown, **dict.fromkeys(DROP_REASONS, was_at_best_effort(each))}
        borne_out = (~each["reason"].eqNullSafe(reason) | is_so for reason, is_so in by_reason.items())
        return reduce(and_, borne_out, each["outcome"] == outcome)

    return sf.exists("found", holds)


def was_at_best_effort(decision: Column) -> Column:
    """Whether the contract, or the event in the tap, has the decision's delivery at best effort."""
    asks = sf.coalesce(sf.col("first.asks_best_effort"), sf.lit(False))
    return sf.when(asks, decision["is_best_effort_if_asked"]).otherwise(decision["is_best_effort"])
