"""The audit itself: from an archive to what it found.

What the archive has of one event is an event group, judged in Python (`judge`). Of a small archive all groups
are judged in this process; of a large one the screen counts the events with which nothing is wrong, and the
executors judge the others.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, Final
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from eventplane.archive_layout import COMPACTED, HANDOVERS_FOLDER, LEDGER_FOLDER, TAP_FOLDER
from eventplane.handover import HANDOVERS
from eventplane.ledger import LEDGER, TAP
from glue_jobs.common.archive import Archive, ObjectFault, Part
from glue_jobs.common.objects import Objects
from glue_jobs.delivery_audit import rows
from glue_jobs.delivery_audit.attributes import Attributes, attributes_of
from glue_jobs.delivery_audit.contracts import ContractHistory, archived, load_history
from glue_jobs.delivery_audit.errors import EmptyWindowError, NoArchiveError
from glue_jobs.delivery_audit.event_group import BadRow, LedgerRow, Rules
from glue_jobs.delivery_audit.expect import expected_routes, filters_of
from glue_jobs.delivery_audit.figures import Figures
from glue_jobs.delivery_audit.findings import Finding
from glue_jobs.delivery_audit.judging import Judged, judge_rows, letters_of, unreadable_hours, usages
from glue_jobs.delivery_audit.ordering import ordered_inboxes, overtaken
from glue_jobs.delivery_audit.watermark import Watermark
from glue_jobs.delivery_audit.window import Window

SMALL_BYTES: Final = 8 * 2**20
"""How large an archive is at most that is judged in one process, bytes: some 75,000 events. Ours."""


@dataclass(frozen=True, slots=True)
class Audit:
    """The result. `parts` are the folders of the archive as they were read."""

    window: Window
    watermark: Watermark
    history: ContractHistory
    judged: Judged
    figures: Figures
    findings: list[Finding]
    parts: dict[str, Part]
    faults: tuple[ObjectFault, ...]


def progress(text: str) -> None:
    """Say on standard error what is being done, for people who wait."""
    print(f"{datetime.now(UTC):%H:%M:%S} {text}", file=sys.stderr, flush=True)


@contextmanager
def audited(
    spark: SparkSession,
    objects: Objects,
    work: Objects,
    window: Window,
    watermark: Watermark,
    *,
    screens: bool | None = None,
) -> Iterator[Audit]:
    """Audit the archive in `objects`; its tables are kept, some beneath `work`, until the block ends.

    `screens` is whether ordinary events are only counted; None: if the archive is not small. The result is
    the same. Raises `NoArchiveError`, `NoContractError`, `AlteredContractError`, `EmptyWindowError`.
    """
    source = Archive(spark, objects)
    folder = f"work/{window}/{uuid4()}"
    try:
        yield source.isolating(lambda: _Run(spark, source, objects, window, watermark, screens).audit())
    finally:
        spark.catalog.clearCache()
        work.clear(folder)


class _Run:
    """One audit, from the listing of the archive on."""

    def __init__(
        self,
        spark: SparkSession,
        source: Archive,
        objects: Objects,
        window: Window,
        watermark: Watermark,
        screens: bool | None,
    ) -> None:
        self._spark = spark
        self._source = source
        self._objects = objects
        self._window = window
        self._watermark = watermark
        self._screens = screens

    def audit(self) -> Audit:
        if not any(self._objects.folders(each) for each in (TAP, LEDGER)):
            raise NoArchiveError(self._objects.uri)
        progress(f"listing {self._objects.uri}")
        contracts = archived(self._objects)
        ledger_part = self._source.read(LEDGER_FOLDER, self._window.folders)
        handover_part = self._source.read(HANDOVERS_FOLDER, self._window.folders)
        progress("reading the ledger")
        ledger = rows.of_ledger(rows.ledger_rows(ledger_part.rows, self._window)).collect()
        decisions = [LedgerRow._make(row.ledger) for row in ledger if row.ledger is not None]
        # A single contract is in force all the time; else the ledger is asked.
        uses = usages(decisions) if len(contracts) > 1 else []
        history, contract_faults = load_history(self._objects, contracts, uses)
        texts, typed = attributes_of(filters_of(history))
        texts |= frozenset(rows.READ_ATTRIBUTES)
        tap_part = self._source.read(
            TAP_FOLDER, self._window.folders, texts=texts, integers=typed, booleans=typed
        )
        parts = {TAP: tap_part, LEDGER: ledger_part, HANDOVERS: handover_part}
        routes = expected_routes(history, Attributes.read(texts, typed))
        tap = rows.tap_rows(tap_part.rows, routes, self._window).persist()
        progress("reading the tap")
        found = [
            *_padded(ledger, ("ledger", "bad")),
            *_padded(rows.of_tap(tap).collect(), ("tap", "item", "bad")),
            *_padded(
                rows.of_handovers(rows.handover_rows(handover_part.rows, self._window)).collect(),
                ("handover", "bad"),
            ),
        ]
        found.sort(key=itemgetter(0, 1))
        progress(f"judging {len(found):,} rows")
        bad = [BadRow._make(row[-1]) for row in found if row[-1] is not None]
        rules = Rules(history, self._watermark, self._window, unreadable_hours(bad))
        judged = judge_rows(found, rules, letters_of(decisions), ordered_inboxes(history))
        if judged.accepted_ms is None and not decisions and not bad:
            raise EmptyWindowError(self._objects.uri, str(self._window))
        findings = [*judged.judgement.findings, *overtaken(judged.ordered)]
        return Audit(
            window=self._window,
            watermark=self._watermark,
            history=history.with_uses(judged.first_decided_ms),
            judged=judged,
            figures=Figures(judged),
            findings=findings,
            parts=parts,
            faults=(*(fault for part in parts.values() for fault in part.faults), *contract_faults),
        )


def _padded(found: Sequence[Any], names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Rows with the columns `names` behind the key as rows with the columns `GROUPED`."""
    places = [names.index(name) + len(rows.KEY) if name in names else None for name in rows.STRUCTS]
    for row in found:
        yield (row[0], row[1], *(None if place is None else row[place] for place in places))
