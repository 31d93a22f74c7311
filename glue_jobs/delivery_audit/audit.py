"""The audit itself: from an archive to the tables of its result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf

from glue_jobs.delivery_audit import archive, contracts, dead_letters, devices, figures, findings, quarantine
from glue_jobs.delivery_audit.deliveries import deliveries
from glue_jobs.delivery_audit.errors import EmptyWindowError
from glue_jobs.delivery_audit.ledger import decisions, ledger_rows
from glue_jobs.delivery_audit.storage import Storage
from glue_jobs.delivery_audit.tap import events, tap_rows
from glue_jobs.delivery_audit.window import Window


@dataclass(frozen=True, slots=True)
class Audit:
    """The result as tables, the good rows it came from, and how many rows were read.

    `extent` has `tap_rows`, `ledger_rows` (bad ones included), `first_accepted_ms`, `last_accepted_ms`.
    """

    window: Window
    history: contracts.ContractHistory
    extent: Row
    ledger: DataFrame
    deliveries: DataFrame
    routes: DataFrame
    devices: DataFrame
    refusals: DataFrame
    findings: DataFrame
    quarantine: DataFrame


@contextmanager
def audited(spark: SparkSession, storage: Storage, uri: str, window: Window) -> Iterator[Audit]:
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
        delivered = keep(deliveries(events(tap), decisions(ledger, history), history))
        refusals = keep(dead_letters.refusals(tap, ledger))
        yield Audit(
            window=window,
            history=history,
            extent=extent,
            ledger=ledger,
            deliveries=delivered,
            routes=keep(figures.routes(delivered)),
            devices=keep(devices.devices_by_day(tap)),
            refusals=refusals,
            findings=keep(findings.findings(delivered, refusals)),
            quarantine=quarantine.quarantined(every_item, every_decision),
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
