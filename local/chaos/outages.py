"""What each outage of a run did to urgent events and copies, and which of the plane's alarms saw it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Final

from local.chaos.alarms import Alarm, Metrics, UnreadAlarmError, Watched
from local.chaos.counters import Times, quantile
from local.chaos.faults import InjectedFault
from local.oracle import Key

MOST_COPIES: Final = 9
"""Of one event in one inbox. Ours: an outage may repeat events, but not multiply them."""

RECOVERY_S: Final = 30.0
"""Aim: so long after an outage the last urgent event that waited has arrived. Ours: urgent messages are
tried again after 20 s at most, and a function may begin cold."""

AFTER_S: Final = 15.0
"""How long after an outage its effects are looked for at most, until the next one begins."""

BEFORE_S: Final = 5.0
"""For so long before an outage, after the previous one, an alarm must be silent, or it does not count."""


@dataclass(frozen=True, slots=True)
class Episode:
    """The faults of `kinds`, which overlap: from the first one's beginning to the last one's end."""

    kinds: tuple[str, ...]
    began: float
    ended: float

    @property
    def name(self) -> str:
        return "+".join(self.kinds)

    @property
    def is_outage(self) -> bool:
        """Whether a service failed: a process that is killed while it does nothing is nobody's concern."""
        return not all(each.endswith("-kill") for each in self.kinds)

    @property
    def stops_urgent(self) -> bool:
        """Whether nothing can be delivered meanwhile, because all of SQS fails."""
        return any(each.startswith("sqs-") for each in self.kinds)


@dataclass(frozen=True, slots=True)
class Seen:
    """The alarms that saw an episode: `breached`, or `rising` for those that watch an age that rose."""

    breached: tuple[str, ...]
    rising: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.breached or self.rising)


@dataclass(frozen=True, slots=True)
class Delays:
    """Median, 99th percentile and longest of `number` times, milliseconds; None of none."""

    number: int
    p50_ms: int | None = None
    p99_ms: int | None = None
    max_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Urgent:
    """The urgent events of one episode.

    `during` of those sent in it, `after` of those sent after it until the next one. `held` were sent in its
    first half and came after its end only; `latest_s` is how long after its end the last of `during` came.
    """

    during: Delays
    after: Delays
    held: int
    latest_s: float


def episodes(struck: Iterable[InjectedFault]) -> list[Episode]:
    """Return the episodes in the order of time."""
    found: list[Episode] = []
    for each in sorted(struck, key=lambda fault: fault.began):
        if found and each.began <= found[-1].ended:
            last = found.pop()
            kinds = (*last.kinds, each.kind)
            found.append(Episode(kinds, last.began, max(last.ended, each.ended)))
        else:
            found.append(Episode((each.kind,), each.began, each.ended))
    return found


def urgent(found: Sequence[Episode], sent: Times, arrived: Times) -> list[Urgent]:
    """Return what became of the urgent events of each episode; `sent` and `arrived` have when, by event."""
    return [
        _urgent(each, following, sent, arrived)
        for each, following in zip(found, _following(found), strict=True)
    ]


def _urgent(episode: Episode, following: float, sent: Times, arrived: Times) -> Urgent:
    delays = {key: arrived[key] - at for key, at in sent.items() if key in arrived}
    during = [key for key in delays if episode.began <= sent[key] < episode.ended]
    half = (episode.began + episode.ended) / 2
    return Urgent(
        _times([delays[key] for key in during]),
        _times([delay for key, delay in delays.items() if episode.ended <= sent[key] < following]),
        sum(sent[key] < half and arrived[key] > episode.ended for key in during),
        max([0.0, *(arrived[key] - episode.ended for key in during)]),
    )


def seen(found: Sequence[Episode], alarms: Iterable[Alarm], metrics: Metrics) -> tuple[list[Seen], list[str]]:
    """Return the alarms that saw each episode, and those that cannot be evaluated, each with the reason.

    An episode and what follows it until the next one, `AFTER_S` at most, is taken for one period of every
    alarm. One that breaches, or rises, before an episode as well does not count for it.
    """
    unread: list[str] = []
    readable: list[Alarm] = []
    for alarm in alarms:
        try:
            alarm.value(metrics, 0.0, 0.0)
        except UnreadAlarmError as error:
            unread.append(str(error))
        else:
            readable.append(alarm)
    saw = []
    earlier = 0.0
    for each, following in zip(found, _following(found), strict=True):
        over = min(following, each.ended + AFTER_S)
        before = max(earlier, each.began - BEFORE_S)
        earlier = each.ended
        breached = [
            alarm.name
            for alarm in readable
            if alarm.is_breached(metrics, each.began, over)
            and not alarm.is_breached(metrics, before, each.began)
        ]
        half = (each.ended - each.began) / 2
        rising = [
            alarm.name
            for alarm in readable
            if alarm.rises(metrics, each.began, each.ended)
            and not alarm.rises(metrics, each.began - half, each.began)
        ]
        saw.append(Seen(tuple(breached), tuple(rising)))
    return saw, unread


def _following(found: Sequence[Episode]) -> list[float]:
    return [*(each.began for each in found), float("inf")][1:]


def _times(values: Sequence[float]) -> Delays:
    if not values:
        return Delays(0)
    p50, p99, most = (round(1_000 * each) for each in (median(values), quantile(values, 0.99), max(values)))
    return Delays(len(values), p50, p99, most)


COPIES: Final = "events with too many copies"
HELD: Final = "urgent events held up"
UNSEEN: Final = "outages without an alarm"
NOTES: Final = {
    COPIES: f"events of which one inbox got more than {MOST_COPIES} copies",
    HELD: "sent in the first half of an outage that is not of all SQS, and arrived after its end only",
    UNSEEN: "no alarm's threshold was breached, and no age that an alarm watches rose",
}


@dataclass(frozen=True, slots=True)
class Outages:
    """What is published of the outages: a row of each, the most `copies` of an event, what is `wrong`.

    `unread` are the alarms that could not be evaluated.
    """

    rows: list[dict[str, Any]]
    copies: int
    wrong: dict[str, int]
    unread: list[str]


def judge_outages(
    struck: Iterable[InjectedFault],
    watched: Watched,
    sent: Times,
    arrived: Times,
    again: Iterable[Mapping[Key, int]],
) -> Outages:
    """Judge the outages of a run by its urgent events, which were `sent` and `arrived`, and its alarms.

    `again` counts repetitions in each inbox.
    """
    found = episodes(struck)
    urgents = urgent(found, sent, arrived)
    saw, unread = seen(found, watched.alarms, watched.metrics)
    copies = [1 + count for each in again for count in each.values()]
    wrong = {
        COPIES: sum(each > MOST_COPIES for each in copies),
        HELD: sum(by.held for each, by in zip(found, urgents, strict=True) if not each.stops_urgent),
        UNSEEN: sum(not by for each, by in zip(found, saw, strict=True) if each.is_outage),
    }
    return Outages(_rows(found, urgents, saw), max(copies, default=1), wrong, unread)


def _rows(found: Sequence[Episode], urgents: Sequence[Urgent], saw: Sequence[Seen]) -> list[dict[str, Any]]:
    """Return what is published of each episode."""
    rows: list[dict[str, Any]] = []
    for each, alarms, by in zip(found, urgents, saw, strict=True):
        row: dict[str, Any] = {"fault": each.name, "seconds": round(each.ended - each.began, 1)}
        row |= {f"urgent_{name}": value for name, value in asdict(alarms).items()}
        row["urgent_latest_s"] = round(alarms.latest_s, 1)
        row |= {"breached": list(by.breached), "rising": list(by.rising)}
        rows.append(row)
    return rows
