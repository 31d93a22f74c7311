"""What devices say that they did not deliver: the one reason for which an event may be missing.

On a full disk an urgent event takes the place of others, whose senders have their receipts already. The
device counts them and reports their numbers; so many, and no more, are no loss that nobody knows of.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

from eventplane.device_reports import DISCARDED, STARTED
from eventplane.ledger import TAP
from local.oracle import Verdict
from local.sent import Key


def given_up(archive: Path, destination: str) -> Counter[str]:
    """How many deliveries to `destination` each device has reported as discarded, by its name."""
    reports = {
        (event["source"], event["id"]): event
        for file in (archive / TAP).rglob("*.json.gz")
        for line in gzip.decompress(file.read_bytes()).decode().splitlines()
        if DISCARDED in line and (text := json.loads(line)["event"])
        for event in [json.loads(text)]
        if event["type"] == DISCARDED
    }
    counts: Counter[str] = Counter()
    for (source, _), event in reports.items():
        told = event["data"]["deliveries"]
        counts[source.split("/")[2]] += sum(
            each["count"] for each in told if each["destination"] == destination
        )
    return +counts


def missing(verdicts: Iterable[Verdict]) -> set[Key]:
    """The different events that are missing somewhere."""
    return {key for each in verdicts for key in each.lost}


def unexcused(missing: Collection[Key], given_up: Counter[str]) -> int:
    """How many of the `missing` no device has given up.

    A report of one home excuses nothing of another. The key of a dead letter does not tell its home, so what
    the reports of all homes have left excuses it.
    """
    by_home = Counter(_home(key) for key in missing)
    letters = by_home.pop(_UNKNOWN, 0)
    left = (given_up - by_home).total()
    return (by_home - given_up).total() + max(0, letters - left)


_UNKNOWN: Final = ""


def _home(key: Key) -> str:
    first, second = key
    if first == STARTED:
        return second.split("/")[2]
    return first.split("/")[2] if first.startswith("/") else _UNKNOWN
