"""What the counters at both ends say: pure functions over what was sent, what arrived, and when."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from local.chaos.injector import Struck
from local.sent import Key, SentEvent

Times = Mapping[Key, float]
"""When each event was first sent, or first arrived: seconds of the Unix clock, in that order."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """How long after the end of fault `kind` the oldest event that waited then had arrived, seconds."""

    kind: str
    home: str
    seconds: float


def out_of_order(sent: Sequence[SentEvent], arrived: Iterable[Key]) -> int:
    """How many first arrivals came after one that their source sent later.

    `sent` in the order of sending, `arrived` in the order of first arrival.
    """
    place = {event.key: number for number, event in enumerate(sent)}
    newest: dict[str, int] = defaultdict(lambda: -1)
    late = 0
    for key in arrived:
        number = place.get(key)
        if number is None:
            continue  # a dead letter or a report: nobody numbered it
        late += number < newest[key[0]]
        newest[key[0]] = max(number, newest[key[0]])
    return late


def recoveries(struck: Iterable[Struck], sent: Times, arrived: Times) -> list[Recovery]:
    """One for each fault at whose end no other was at its home; 0 s where no event waited then.

    `sent` and `arrived` of the events that one inbox must get.
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
    """Seconds from sending to first arrival of each event that arrived."""
    return [arrived[key] - at for key, at in sent.items() if key in arrived]


def delays_during(struck: Iterable[Struck], sent: Times, arrived: Times) -> list[float]:
    """The same, of events that were sent while a fault was at their home."""
    spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for fault in struck:
        spans[fault.home].append((fault.began, fault.ended))
    hit = {
        key: at for key, at in sent.items() if any(began <= at < ended for began, ended in spans[_home(key)])
    }
    return delays(hit, arrived)


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of them lie; 0 when there is none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def _home(key: Key) -> str:
    return key[0].split("/")[2]
