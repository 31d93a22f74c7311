"""The truth table: what was planted, in the columns in which an audit reports what it found."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

TRUTH = "truth.jsonl.gz"
"""The table's file, beside the archive and not in it."""


class Kind(StrEnum):
    """What an audit finds."""

    LOST = "lost"
    MISROUTED = "misrouted"
    UNROUTED_DELIVERED = "unrouted_delivered"
    DUPLICATE = "duplicate"
    REORDERED = "reordered"
    EXPIRED = "expired"
    DROPPED = "dropped"
    DEAD_LETTERED = "dead_lettered"
    MISSING_MANIFEST = "missing_manifest"
    EPOCH_CHANGE = "epoch_change"
    CLOCK_SKEW = "clock_skew"
    FORGED = "forged"
    NOT_ALLOWED = "not_allowed"
    STALE_CONTRACT = "stale_contract"
    UNCONFIRMED = "unconfirmed"
    TWO_SENDERS = "two_senders"
    CAUSALITY = "causality"
    TYPE_MISMATCH = "type_mismatch"
    SENDER_MISMATCH = "sender_mismatch"
    REUSED_ID = "reused_id"
    MANIFEST_MISMATCH = "manifest_mismatch"
    FOREIGN_EPOCH = "foreign_epoch"
    NOT_UNDERSTOOD = "not_understood"
    UNREADABLE_OBJECT = "unreadable_object"
    DUPLICATE_OBJECT = "duplicate_object"
    MISPLACED_OBJECT = "misplaced_object"
    MISSING_RECORDS = "missing_records"
    ALTERED_OBJECT = "altered_object"
    LATE = "late"
    QUARANTINED = "quarantined"
    """A row of the quarantine's table, not of the findings'."""
    COVERAGE = "coverage"
    """A device that is not attested, by the devices' table; `detail` has the standing."""


class Hop(StrEnum):
    """Where it happened."""

    DEVICE_CLOUD = "device_cloud"
    IOT_RULE = "iot_rule"
    ROUTER = "router"
    INBOX_CONSUMER = "inbox_consumer"
    ARCHIVE = "archive"


@dataclass(frozen=True, slots=True)
class Truth:
    """One planted fact. Of what the archive cannot know there is None: a lost event has no `source` and `id`.

    `detail` of a quarantined row is a text that stands in the row, and in no other.
    """

    kind: Kind
    hop: Hop | None
    device: str | None = None
    epoch: str | None = None
    sequence: int | None = None
    source: str | None = None
    id: str | None = None
    type: str | None = None
    route: str | None = None
    destination: str | None = None
    contract_version: str | None = None
    archive_file: str | None = None
    at_ms: int | None = None
    detail: str | None = None


COLUMNS = tuple(field.name for field in fields(Truth))


class TruthTable:
    """Writes the facts to `path` as they are planted, and counts them."""

    def __init__(self, path: Path) -> None:
        self.counts: Counter[str] = Counter()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = gzip.open(path, "wt", encoding="utf-8", compresslevel=1)  # noqa: SIM115 - closed by __exit__

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, *facts: Truth) -> None:
        """These were planted."""
        for fact in facts:
            self.counts[f"{fact.kind} {fact.hop or '-'}"] += 1
            self._file.write(json.dumps(asdict(fact), ensure_ascii=False) + "\n")


def read_truth(path: Path) -> Iterator[dict[str, object]]:
    """The facts of the table at `path`."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)
