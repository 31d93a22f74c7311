"""Inbox to consumer, where that is a webhook: what came of what the ledger put into the inbox."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from eventplane.delivery import Outcome
from eventplane.expiry import BY_CHANNEL
from glue_jobs.delivery_audit.contracts import ContractHistory
from glue_jobs.delivery_audit.quarantine import any_missing, fault
from glue_jobs.delivery_audit.schema import CORRUPT, HANDOVER_ROW
from glue_jobs.delivery_audit.verdicts import Verdict, was_at_best_effort
from glue_jobs.delivery_audit.watermark import Watermark
from glue_jobs.delivery_audit.window import is_time
from glue_jobs.delivery_audit.witness import name_of, witness

ENDS = (Outcome.DELIVERED, Outcome.DEAD_LETTERED, Outcome.EXPIRED, Outcome.DROPPED)
"""What can become of an event at an endpoint."""

_MEMBERS = tuple(name for name in HANDOVER_ROW.names if name != CORRUPT)


def handover_witness(raw: DataFrame) -> DataFrame:
    """The handovers as `witness` columns; one of what is no event has no name, and says nothing here."""
    faults = fault(
        {
            "missing_member": any_missing(
                "decided_at_ms", "entered_at_ms", "channel", "source", "id", "outcome"
            ),
            "impossible_time": ~(is_time(sf.col("decided_at_ms")) & is_time(sf.col("entered_at_ms"))),
            "unknown_outcome": ~sf.col("outcome").isin([str(each) for each in ENDS]),
        }
    )
    rows = raw.withColumn("fault", faults).where(sf.col("fault").isNotNull() | (sf.col("id") != ""))
    end = sf.struct(
        # What was delivered is delivered, also where a copy was not: it comes first.
        (sf.col("outcome") != Outcome.DELIVERED).alias("failed"),
        "decided_at_ms",
        "channel",
        "outcome",
        "reason",
        "status",
        "entered_at_ms",
        "file",
        "type",
    )
    good = sf.col("fault").isNull()
    return witness(
        rows,
        archive="handovers",
        members=_MEMBERS,
        within=sf.lit(True),
        name=name_of(sf.col("sender"), sf.col("source"), sf.col("id")),
        sender=sf.when(good, sf.col("sender")),
        source=sf.when(good, sf.col("source")),
        id=sf.when(good, sf.col("id")),
        handover=sf.when(good, end),
    )


def webhooks(history: ContractHistory) -> dict[str, int]:
    """The inboxes that are webhooks, and for how long each goes on trying, seconds."""
    return {
        participant.inbox.address: participant.inbox.webhook.give_up_after_s
        for contract in history.contracts
        for participant in contract.participants.values()
        if participant.inbox.webhook
    }


def _worth_ms(history: ContractHistory) -> Column:
    """How long an event is worth handing over in the webhook `destination`, milliseconds; null for ever.

    By the strictest contract of the window: functions of several may run side by side.
    """
    bounds = {
        (inbox.address, 1_000 * inbox.expiry_s)
        for contract in history.contracts
        for inbox in (participant.inbox for participant in contract.participants.values())
        if inbox.webhook and inbox.expiry_s is not None
    }
    strictest = dict(sorted(bounds, reverse=True))
    pairs = [sf.lit(each) for pair in strictest.items() for each in pair]
    return sf.create_map(*pairs)[sf.col("destination")] if pairs else sf.lit(None).cast("long")


def consumption(history: ContractHistory, watermark: Watermark) -> Column:
    """What became of an event in the inbox `destination`; null where that is no webhook.

    Of a delivery's row with the `decisions` and `handovers` of its event. `handed_over` counts the times that
    the endpoint took it, `put` those that it was put into the inbox, over whatever route.
    """
    patience = webhooks(history)
    here = sf.col("destination")
    waits = [sf.lit(each) for pair in patience.items() for each in pair]
    wait_s = sf.create_map(*waits)[here] if waits else sf.lit(0)
    put = sf.filter(
        "decisions", lambda each: (each["outcome"] == Outcome.DELIVERED) & (each["destination"] == here)
    )
    ends = sf.filter("handovers", lambda each: each["channel"] == here)
    put_at_ms = sf.array_min(sf.transform(put, lambda each: each["decided_at_ms"]))
    end = sf.array_min(ends)
    by_itself = end["decided_at_ms"] >= sf.col("first.expires_at_ms")
    age_ms = end["decided_at_ms"] - end["entered_at_ms"]
    by_channel = (end["reason"] == BY_CHANNEL) & (age_ms >= _worth_ms(history))
    no = sf.lit(False)
    expired = ~sf.col("in_tap") | sf.coalesce(by_itself, no) | sf.coalesce(by_channel, no)
    dropped = ~sf.col("in_tap") | sf.exists(put, was_at_best_effort)
    unbacked = ((end["outcome"] == Outcome.EXPIRED) & ~expired) | (
        (end["outcome"] == Outcome.DROPPED) & ~dropped
    )
    verdict = (
        # Whether an event of the tap had expired, or could be dropped, is known and not taken on trust.
        sf.when(end.isNotNull() & ~unbacked, end["outcome"])
        .when(unbacked, sf.lit(str(Verdict.LOST)))
        .when(watermark.is_open(put_at_ms + 1_000 * wait_s), sf.lit(str(Verdict.PENDING)))
        .otherwise(sf.lit(str(Verdict.LOST)))
    )
    known = sf.struct(
        verdict.alias("verdict"),
        sf.size(put).alias("put"),
        put_at_ms.alias("put_at_ms"),
        sf.size(sf.filter(ends, lambda each: ~each["failed"])).alias("handed_over"),
        end["outcome"].alias("outcome"),
        end["reason"].alias("reason"),
        end["status"].alias("status"),
        end["entered_at_ms"].alias("entered_at_ms"),
        end["decided_at_ms"].alias("ended_at_ms"),
        end["file"].alias("file"),
    )
    if not patience:
        return sf.when(sf.lit(False), known)
    return sf.when(sf.col("opens_inbox") & here.isin(*patience), known)


def strangers() -> Column:
    """Of a case: the handovers of what the ledger never put into the inbox; null where there are none."""
    put = sf.filter("decisions", lambda each: each["outcome"] == Outcome.DELIVERED)
    inboxes = sf.transform(put, lambda each: each["destination"])
    unknown = sf.filter("handovers", lambda each: ~sf.array_contains(inboxes, each["channel"]))
    return sf.when(sf.size("handovers") > 0, sf.when(sf.size(unknown) > 0, unknown))
