"""What devices report as not delivered, the one reason for which an event may be missing, and what they sent
again.

On a full disk an urgent event takes the place of others, whose senders have their receipts already. The
device counts them and reports their numbers; so many, and no more, are no loss that nobody knows of.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from eventplane.device_reports import DISCARDED, STARTED
from eventplane.ledger import TAP
from local.oracle import Verdict
from local.sent import Key


def given_up(archive: Path, destination: str) -> Counter[str]:
    """How many deliveries to `destination` each device has reported as discarded, by its name."""
    counts: Counter[str] = Counter()
    for event in _reports(archive):
        told = event["data"]["deliveries"]
        counts[event["source"].split("/")[2]] += sum(
            each["count"] for each in told if each["destination"] == destination
        )
    return +counts


def not_stored(archive: Path, channel: str) -> Counter[str]:
    """How many deliveries to `channel` devices report as given up from memory, by reason."""
    counts: Counter[str] = Counter()
    for event in _reports(archive):
        for each in event["data"]["not_stored"]:
            if each["channel"] == channel:
                counts[each["reason"]] += each["count"]
    return counts


def sent_again(archive: Path) -> int:
    """How many events that devices sent to the cloud it had accepted before.

    After a crash a device sends again what was in flight, since nothing told it that the cloud has it.
    """
    items = {
        (row["message_id"], row["index"]): (row["client_id"], event["source"], event["id"])
        for row in map(json.loads, _lines(archive))
        if row["event"]
        for event in [json.loads(row["event"])]
    }
    return len(items) - len(set(items.values()))


def _reports(archive: Path) -> Iterable[dict[str, Any]]:
    """The reports of losses, each once."""
    events = (json.loads(json.loads(line)["event"] or "{}") for line in _lines(archive) if DISCARDED in line)
    return {
        (event["source"], event["id"]): event for event in events if event.get("type") == DISCARDED
    }.values()


def _lines(archive: Path) -> Iterator[str]:
    for file in (archive / TAP).rglob("*.json.gz"):
        yield from gzip.decompress(file.read_bytes()).decode().splitlines()


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
