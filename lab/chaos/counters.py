"""Counts over what was sent, what arrived and when, and what devices report as lost: pure functions."""

import gzip
import json
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from eventplane.device_reports import DISCARDED, STARTED
from eventplane.ledger import TAP
from lab.chaos.faults import InjectedFault
from lab.oracle import Key, SentEvent, ServiceResult

Times = Mapping[Key, float]
"""When each event was first sent, or first arrived: seconds of the Unix clock, in that order."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """The time from the end of fault `kind` to the arrival of the oldest event that waited, seconds."""

    kind: str
    home: str
    seconds: float


def out_of_order(sent: Sequence[SentEvent], arrived: Iterable[Key]) -> int:
    """Return how many first arrivals came after one that their source sent later.

    `sent` is in the order of sending, `arrived` in the order of first arrival.
    """
    place = {event.key: number for number, event in enumerate(sent)}
    newest: dict[str, int] = defaultdict(lambda: -1)
    late = 0
    for key in arrived:
        number = place.get(key)
        if number is None:
            continue  # a dead letter or a report has no number
        late += number < newest[key[0]]
        newest[key[0]] = max(number, newest[key[0]])
    return late


def recoveries(struck: Iterable[InjectedFault], sent: Times, arrived: Times) -> list[Recovery]:
    """Return one for each fault at whose end its home had no other fault; 0 s where no event waited then.

    `sent` and `arrived` are those of the events that one inbox must get.
    """
    struck = list(struck)
    by_home: dict[str, list[tuple[float, Key]]] = defaultdict(list)
    for key, at in sent.items():
        by_home[_home(key)].append((at, key))
    found = []
    for fault in struck:
        if any(each.home == fault.home and each.began <= fault.ended < each.ended for each in struck):
            continue
        events = by_home[fault.home]
        before = events[: bisect_left(events, (fault.ended, ("", "")))]
        waiting = (arrived[key] for _, key in before if arrived.get(key, 0.0) > fault.ended)
        oldest = next(waiting, fault.ended)
        found.append(Recovery(fault.kind, fault.home, oldest - fault.ended))
    return found


def delays(sent: Times, arrived: Times) -> list[float]:
    """Return the seconds from sending to first arrival of each event that arrived."""
    return [arrived[key] - at for key, at in sent.items() if key in arrived]


def delays_during(struck: Iterable[InjectedFault], sent: Times, arrived: Times) -> list[float]:
    """Return the `delays` of the events that were sent during a fault at their home."""
    spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for fault in struck:
        spans[fault.home].append((fault.began, fault.ended))
    hit = {
        key: at for key, at in sent.items() if any(began <= at < ended for began, ended in spans[_home(key)])
    }
    return delays(hit, arrived)


def given_up(archive: Path, destination: str) -> Counter[str]:
    """Return how many deliveries to `destination` each device has reported as discarded, by its name."""
    counts: Counter[str] = Counter()
    for event in _reports(archive):
        deliveries = event["data"]["deliveries"]
        counts[event["source"].split("/")[2]] += sum(
            each["count"] for each in deliveries if each["destination"] == destination
        )
    return +counts


def not_stored(archive: Path, channel: str) -> Counter[str]:
    """Return how many deliveries to `channel` devices report as given up from memory, by reason."""
    counts: Counter[str] = Counter()
    for event in _reports(archive):
        for each in event["data"]["not_stored"]:
            if each["channel"] == channel:
                counts[each["reason"]] += each["count"]
    return counts


def sent_again(archive: Path) -> int:
    """Return how many events devices sent to the cloud after it had accepted them.

    After a crash a device sends again what was in flight, whose acknowledgement it did not get.
    """
    items = {
        (row["message_id"], row["index"]): (row["client_id"], event["source"], event["id"])
        for row in map(json.loads, _lines(archive))
        if row["event"]
        for event in [json.loads(row["event"])]
    }
    return len(items) - len(set(items.values()))


def _reports(archive: Path) -> Iterable[dict[str, Any]]:
    """Return the reports of losses, each once."""
    events = (json.loads(json.loads(line)["event"] or "{}") for line in _lines(archive) if DISCARDED in line)
    return {
        (event["source"], event["id"]): event for event in events if event.get("type") == DISCARDED
    }.values()


def _lines(archive: Path) -> Iterator[str]:
    for file in (archive / TAP).rglob("*.json.gz"):
        yield from gzip.decompress(file.read_bytes()).decode().splitlines()


def missing(verdicts: Iterable[ServiceResult]) -> set[Key]:
    """Return the different events that are missing somewhere."""
    return {key for each in verdicts for key in each.lost}


def unexcused(missing: Collection[Key], given_up: Counter[str]) -> int:
    """Return how many of the `missing` no device has given up.

    On a full disk an urgent event displaces others, whose senders have their receipts; the device reports how
    many. A report covers losses of its own home only, and the rest of all reports covers dead letters, whose
    keys do not name their home.
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
