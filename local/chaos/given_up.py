"""What devices say that they did not deliver: the one reason for which an event may be missing.

On a full disk an urgent event takes the place of others, whose senders have their receipts already. The
device counts them and reports their numbers; so many, and no more, are no loss that nobody knows of.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from eventplane.device_reports import DISCARDED
from eventplane.ledger import TAP
from local.oracle import Verdict


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


def missing_by_home(verdicts: Iterable[Verdict]) -> Counter[str]:
    """How many different events of each home are missing somewhere."""
    return Counter(source.split("/")[2] for source, _ in {key for each in verdicts for key in each.lost})
