"""What the archive of a history says."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from local.histories.cloud import BUCKET

if TYPE_CHECKING:
    from local.histories.history import History


def ledger(history: History) -> Iterator[dict[str, Any]]:
    """The records of routing decisions."""
    for key, each in history.cloud.s3.buckets[BUCKET].items():
        if key.startswith("ledger/"):
            yield from map(json.loads, gzip.decompress(each.body).splitlines())
