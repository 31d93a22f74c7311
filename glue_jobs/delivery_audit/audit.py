"""The audit itself: from an archive to the tables of its result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf

from glue_jobs.delivery_audit import (
    archive,
    clocks,
    completeness,
    contracts,
    dead_letters,
    devices,
    epochs,
    evidence,
    figures,
    handovers,
    ordering,
    quarantine,
    replay,
)
from glue_jobs.delivery_audit.deliveries import deliveries
from glue_jobs.delivery_audit.errors import EmptyWindowError
from glue_jobs.delivery_audit.ledger import decisions, ledger_rows
from glue_jobs.delivery_audit.storage import Storage
from glue_jobs.delivery_audit.tap import events, tap_rows
from glue_jobs.delivery_audit.watermark import Watermark
from glue_jobs.delivery_audit.window import Window


@dataclass(frozen=True, slots=True)
class Audit:
    """The result as tables, the good rows it came from, and how many rows were read.

    `extent` has `tap_rows`, `ledger_rows` (bad ones included), `first_accepted_ms`, `last_accepted_ms`.
    """

    window: Window
    watermark: Watermark
    history: contracts.ContractHistory
    extent: Row
    ledger: DataFrame
    deliveries: DataFrame
    routes: DataFrame
    devices: DataFrame
    consumptions: DataFrame
    consumers: DataFrame
    refusals: DataFrame
    findings: DataFrame
    replay: DataFrame
    quarantine: DataFrame


@contextmanager
def audited(
    spark: SparkSession, storage: Storage, uri: str, window: Window, watermark: Watermark
) -> Iterator[Audit]:
    """The audit of the archive at `uri`; its tables are kept until the block ends.

    Raises `NoArchiveError`, `NoContractError`, `AlteredContractError`, `EmptyWindowError`.
    """
    kept: list[DataFrame] = []

    def keep(table: DataFrame) -> DataFrame:
        # Each is read by several results; parsing is most of the work.
        kept.append(table.persist(StorageLevel.MEMORY_AND_DISK))
        return table

    source = archive.Archive(spark, storage, uri)
    try:
        every_decision = keep(ledger_rows(source.ledger(window), window))
        ledger = quarantine.good(every_decision)
        first_used_ms = contracts.first_uses(ledger)
        history = contracts.load_history(spark, storage, uri, first_used_ms)
        every_item = keep(tap_rows(source.tap(window), history, window))
        tap = quarantine.good(every_item)
        extent = _extent(every_item, every_decision)
        if not extent["tap_rows"] + extent["ledger_rows"]:
            raise EmptyWindowError(uri, str(window))
        every_handover = keep(handovers.handover_rows(source.handovers(window)))
        handed_over = quarantine.good(every_handover)
        delivered = keep(deliveries(events(tap), decisions(ledger, history), history, watermark))
        refusals = keep(dead_letters.refusals(tap, ledger))
        around = tap
        if window.day is not None:
            # What a device states of a day, it may have sent the day before or send the day after.
            around = quarantine.good(tap_rows(source.tap_around(window), history, Window()))
        stated = completeness.completeness(around, history.uplinks, window, watermark, keep)
        clock = keep(clocks.clocks(tap))
        consumptions = keep(handovers.consumptions(delivered, handed_over, history, watermark))
        strangers = handovers.strangers(delivered, handed_over)
        if window.day is not None:
            # What came into an inbox the day before is in the ledger of that day.
            strangers = strangers.limit(0)
        found = evidence.union(
            evidence.of_completeness(stated, epochs.changes(tap, stated.births), clock),
            evidence.of_tap(tap),
            evidence.of_deliveries(delivered, watermark),
            evidence.of_refusals(refusals, watermark),
            evidence.of_order(ordering.overtaken(delivered, history)),
            evidence.of_consumptions(consumptions, strangers),
        )
        yield Audit(
            window=window,
            watermark=watermark,
            history=history,
            extent=extent,
            ledger=ledger,
            deliveries=delivered,
            routes=keep(figures.routes(delivered)),
            devices=keep(devices.devices_by_day(tap, stated, clock)),
            consumptions=consumptions,
            consumers=keep(handovers.consumers(consumptions)),
            refusals=refusals,
            findings=keep(found),
            replay=keep(replay.replay_manifest(delivered)),
            quarantine=keep(
                quarantine.quarantined(tap=every_item, ledger=every_decision, handovers=every_handover)
            ),
        )
    finally:
        for table in kept:
            table.unpersist()


def _extent(tap: DataFrame, ledger: DataFrame) -> Row:
    accepted = sf.when(sf.col("fault").isNull(), sf.col("accepted_at_ms"))
    tapped = tap.agg(
        sf.count(sf.lit(1)).alias("tap_rows"),
        sf.min(accepted).alias("first_accepted_ms"),
        sf.max(accepted).alias("last_accepted_ms"),
    )
    decided = ledger.agg(sf.count(sf.lit(1)).alias("ledger_rows"))
    return tapped.crossJoin(decided).collect()[0]
