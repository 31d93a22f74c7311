"""The audit itself: from an archive to what it found.

Everything that the archive has of one event is brought together by one shuffle (`witness.cases`) and judged
there (`deliveries`); what is found, counted and measured is read from that table.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from glue_jobs.common.session import setting
from glue_jobs.delivery_audit import contracts, devices, evidence, ordering
from glue_jobs.delivery_audit.archive import Archive
from glue_jobs.delivery_audit.counting import figures
from glue_jobs.delivery_audit.deliveries import deliveries
from glue_jobs.delivery_audit.device import Scope
from glue_jobs.delivery_audit.errors import EmptyWindowError
from glue_jobs.delivery_audit.figures import Figures
from glue_jobs.delivery_audit.handovers import handover_witness
from glue_jobs.delivery_audit.ledger import ledger_witness, uses
from glue_jobs.delivery_audit.storage import Storage, join
from glue_jobs.delivery_audit.tap import tap_witness
from glue_jobs.delivery_audit.two_senders import two_senders
from glue_jobs.delivery_audit.watermark import Watermark
from glue_jobs.delivery_audit.window import Window
from glue_jobs.delivery_audit.witness import cases


@dataclass(frozen=True, slots=True)
class Audit:
    """The result: `deliveries` by event and route, `devices` as `devices.JUDGED`, `findings` as `FINDING`."""

    window: Window
    watermark: Watermark
    history: contracts.ContractHistory
    figures: Figures
    deliveries: DataFrame
    devices: DataFrame
    findings: DataFrame


@contextmanager
def audited(
    spark: SparkSession, storage: Storage, uri: str, work: str, window: Window, watermark: Watermark
) -> Iterator[Audit]:
    """The audit of the archive at `uri`; its tables are kept, some beneath `work`, until the block ends.

    Raises `NoArchiveError`, `NoContractError`, `AlteredContractError`, `EmptyWindowError`.
    """
    kept: list[DataFrame] = []

    def keep(table: DataFrame) -> DataFrame:
        kept.append(table.persist(StorageLevel.MEMORY_AND_DISK))
        return table

    source = Archive(spark, storage, uri)
    ledger = source.ledger(window)
    texts = contracts.archived(storage, uri)
    # A single contract is in force all the time; else the ledger is asked.
    usages = uses(ledger) if len(texts) != 1 else []
    history = contracts.load_history(uri, texts, usages)
    try:
        together = cases(
            tap_witness(source.tap(window), history, window),
            ledger_witness(ledger, history, window),
            handover_witness(source.handovers(window)),
        )
        # Each name has a row or two: hashing them first would be work for nothing, and sorting them twice.
        with setting(spark, "spark.sql.execution.useObjectHashAggregateExec", "false"):
            judged = storage.settled(deliveries(together, history, watermark), join(work, "deliveries"))
        counted = figures(judged, watermark)
        contracts.check_used(uri, texts, counted.first_uses)
        if not counted.extent["tap_rows"] + counted.extent["ledger_rows"]:
            raise EmptyWindowError(uri, str(window))
        scope = Scope(frozenset(history.uplinks), watermark.ms, sees_all=window.day is None)
        fleet = keep(devices.judged(keep(devices.hours_by_device(judged, watermark)), scope))
        found = evidence.evidence(judged, window, watermark).unionByName(devices.findings(fleet))
        if (overtaken := ordering.overtaken(judged, history)) is not None:
            found = found.unionByName(evidence.of_order(overtaken))
        found = found.unionByName(two_senders(judged))
        yield Audit(
            window=window,
            watermark=watermark,
            history=history.with_uses(counted.first_uses),
            figures=counted,
            deliveries=judged,
            devices=fleet,
            findings=keep(found),
        )
    finally:
        for table in kept:
            table.unpersist()
        storage.delete(work)
