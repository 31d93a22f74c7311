"""The truth table: what was planted, in the columns in which an audit reports what it found."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final, Self

from glue_jobs.delivery_audit.findings import Hop

TRUTH = "truth.jsonl.gz"
"""The table's file, beside the archive and not in it."""


QUARANTINED: Final = "quarantined"
"""The kind of a row of the quarantine's table, not of the findings'."""
COVERAGE: Final = "coverage"
"""The kind of a device that is not attested, by the devices' table; `detail` has the standing."""


PLANTED: Final = frozenset(
    f"{kind} {hop}"
    for hop, kinds in {
        "device_inbox": "lost expired dropped",
        "device_cloud": "lost duplicate expired dropped late forged two_senders missing_manifest "
        "epoch_change clock_skew dead_lettered manifest_mismatch foreign_epoch reused_id contradiction "
        "not_understood",
        "iot_rule": "lost",
        "router": "lost misrouted unrouted_delivered duplicate reordered expired dead_lettered late forged "
        "put_back not_allowed unconfirmed stale_contract clock_skew causality type_mismatch sender_mismatch "
        "not_understood",
        "inbox_consumer": "lost duplicate expired dead_lettered forged causality not_understood",
        "archive": "content_mismatch not_understood contradiction unreadable_object duplicate_object "
        "misplaced_object missing_records altered_object unattested_object",
        "-": "quarantined coverage",
    }.items()
    for kind in kinds.split()
)
"""Each kind at each hop that is planted (explanation.md); `tamper` plants the last two."""


@dataclass(frozen=True, slots=True)
class Truth:
    """One planted fact. Of what the archive cannot know there is None: a lost event has no `source` and `id`.

    `detail` of a quarantined row is a text that stands in the row, and in no other.
    """

    kind: str
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

    def __exit__(self, *_: object) -> None:
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
