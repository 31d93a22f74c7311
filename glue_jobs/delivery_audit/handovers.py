"""Inbox to consumer, where that is a webhook: what the ledger put into the inbox, and what came of it."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from eventplane.delivery import Outcome
from glue_jobs.delivery_audit.contracts import ContractHistory
from glue_jobs.delivery_audit.deliveries import Verdict
from glue_jobs.delivery_audit.quarantine import any_missing, fault, line
from glue_jobs.delivery_audit.schema import CORRUPT, HANDOVER_ROW
from glue_jobs.delivery_audit.watermark import Watermark
from glue_jobs.delivery_audit.window import is_time

KEY = ("channel", "source", "id")


def handover_rows(raw: DataFrame) -> DataFrame:
    """The handovers, each with its `fault` or null."""
    faults = fault(
        {
            "missing_member": any_missing(
                "decided_at_ms", "entered_at_ms", "channel", "source", "id", "outcome"
            ),
            "impossible_time": ~(is_time(sf.col("decided_at_ms")) & is_time(sf.col("entered_at_ms"))),
            "unknown_outcome": ~sf.col("outcome").isin(str(Outcome.DELIVERED), str(Outcome.DEAD_LETTERED)),
        }
    )
    members = [name for name in HANDOVER_ROW.names if name != CORRUPT]
    text = sf.when(faults.isNotNull(), line(*members))
    return raw.select(*members, "date", "file", faults.alias("fault"), text.alias("line"))


def consumptions(
    deliveries: DataFrame, handovers: DataFrame, history: ContractHistory, watermark: Watermark
) -> DataFrame:
    """One row for each event in a webhook's inbox, with the `verdict` on its last hop.

    `handed_over` counts the times that the endpoint took it, `put` those that it was put into the inbox.
    """
    webhooks = {
        participant.inbox.address: participant.inbox.webhook.give_up_after_s
        for contract in history.contracts
        for participant in contract.participants.values()
        if participant.inbox.webhook
    }
    ends = (
        handovers.where(sf.col("id") != "")
        .groupBy(*KEY)
        .agg(
            sf.count_if(sf.col("outcome") == Outcome.DELIVERED).alias("handed_over"),
            sf.min_by(
                sf.struct("outcome", "reason", "status", "entered_at_ms", "decided_at_ms", "file"),
                # What was delivered is delivered, also where a copy was not.
                sf.struct(sf.col("outcome") != Outcome.DELIVERED, "decided_at_ms"),
            ).alias("end"),
        )
    )
    inbox = deliveries.where((sf.col("delivered") > 0) & sf.col("destination").isin(*webhooks))
    inbox = inbox.groupBy(sf.col("destination").alias("channel"), "source", "id").agg(
        sf.sum("delivered").alias("put"),
        sf.min("delivered_at_ms").alias("put_at_ms"),
        sf.min_by(
            sf.struct(
                "date",
                "type",
                "client_id",
                "epoch",
                "sequence",
                "route",
                "priority",
                "contract_version",
                "file",
            ),
            "delivered_at_ms",
        ).alias("inbox"),
    )
    joined = inbox.join(ends, on=list(KEY), how="left")
    patience = sf.lit(max(webhooks.values(), default=0))
    verdict = (
        sf.when(sf.col("end.outcome").isNotNull(), sf.col("end.outcome"))
        .when(watermark.is_open(sf.col("put_at_ms") + 1_000 * patience), sf.lit(str(Verdict.PENDING)))
        .otherwise(sf.lit(str(Verdict.LOST)))
    )
    return joined.select(
        *KEY,
        "inbox.*",
        "put",
        "put_at_ms",
        sf.coalesce("handed_over", sf.lit(0)).alias("handed_over"),
        verdict.alias("verdict"),
        sf.col("end.reason").alias("reason"),
        sf.col("end.status").alias("status"),
        sf.col("end.entered_at_ms").alias("entered_at_ms"),
        sf.col("end.decided_at_ms").alias("ended_at_ms"),
        sf.coalesce("end.file", "inbox.file").alias("archive_file"),
    )


def strangers(deliveries: DataFrame, handovers: DataFrame) -> DataFrame:
    """Handovers of events that the ledger never put into the inbox."""
    put = deliveries.where(sf.col("delivered") > 0).select(
        sf.col("destination").alias("channel"), "source", "id"
    )
    return handovers.where(sf.col("id") != "").join(put, on=list(KEY), how="left_anti")


def consumers(consumptions: DataFrame) -> DataFrame:
    """The figures of each webhook by `date` and `channel`."""
    verdicts = (Verdict.DELIVERED, Verdict.DEAD_LETTERED, Verdict.PENDING, Verdict.LOST)
    return consumptions.groupBy("date", "channel").agg(
        sf.count(sf.lit(1)).alias("expected"),
        *(sf.count_if(sf.col("verdict") == each).alias(each) for each in verdicts),
        sf.sum(sf.greatest(sf.col("handed_over") - sf.col("put"), sf.lit(0))).alias("duplicated"),
    )
