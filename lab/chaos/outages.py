"""The effect of each outage of a run on urgent events and copies, and the plane's alarms that show it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from eventplane.values import quantile
from lab.chaos.alarms import Alarm, Metrics, UnreadAlarmError, Watched
from lab.chaos.counters import Times
from lab.chaos.fault_proxy import Outage
from lab.chaos.faults import InjectedFault
from lab.oracle import Key

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
    """Overlapping faults of `kinds`, from the beginning of the first to the end of the last."""

    kinds: tuple[str, ...]
    began: float
    ended: float

    @property
    def name(self) -> str:
        return "+".join(self.kinds)

    @property
    def is_outage(self) -> bool:
        """True if a service failed; a process is started again, and a lost answer is asked for again."""
        return not all(each.endswith(("-kill", f"-{Outage.ANSWER_LOST}")) for each in self.kinds)

    @property
    def stops_urgent(self) -> bool:
        """True if nothing can be delivered meanwhile, because all of SQS fails."""
        return any(each.startswith("sqs-") and not each.endswith(Outage.ANSWER_LOST) for each in self.kinds)


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
    """The published results: a row for each outage, the most `copies` of an event, what is `wrong`.

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

    `again` counts duplicates in each inbox.
    """
    unread: list[str] = []
    alarms: list[Alarm] = []
    for alarm in watched.alarms:
        try:
            alarm.value(watched.metrics, 0.0, 0.0)
        except UnreadAlarmError as error:
            unread.append(str(error))
        else:
            alarms.append(alarm)
    copies = [1 + count for each in again for count in each.values()]
    wrong = {COPIES: sum(each > MOST_COPIES for each in copies), HELD: 0, UNSEEN: 0}
    rows: list[dict[str, Any]] = []
    found = episodes(struck)
    following = [*(each.began for each in found), float("inf")][1:]
    earlier = 0.0
    for each, until in zip(found, following, strict=True):
        row: dict[str, Any] = {"fault": each.name, "seconds": round(each.ended - each.began, 1)}
        row |= _urgent(each, until, sent, arrived)
        row |= _seen(each, alarms, watched.metrics, earlier, until)
        rows.append(row)
        earlier = each.ended
        wrong[HELD] += 0 if each.stops_urgent else row["urgent_held"]
        wrong[UNSEEN] += each.is_outage and not (row["breached"] or row["rising"])
    return Outages(rows, max(copies, default=1), wrong, unread)


def _urgent(episode: Episode, until: float, sent: Times, arrived: Times) -> dict[str, Any]:
    """Return the delays of urgent events that were sent in an episode, and `until` the next one.

    `urgent_held` were sent in its first half and arrived after its end; `urgent_latest_s` is how long after
    its end the last event of it arrived.
    """
    delays = {key: arrived[key] - at for key, at in sent.items() if key in arrived}
    during = [key for key in delays if episode.began <= sent[key] < episode.ended]
    after = [delay for key, delay in delays.items() if episode.ended <= sent[key] < until]
    half = (episode.began + episode.ended) / 2
    latest_s = max([0.0, *(arrived[key] - episode.ended for key in during)])
    return {
        "urgent_during": _distribution([delays[key] for key in during]),
        "urgent_after": _distribution(after),
        "urgent_held": sum(sent[key] < half and arrived[key] > episode.ended for key in during),
        "urgent_latest_s": round(latest_s, 1),
    }


def _distribution(delays: Sequence[float]) -> dict[str, int | None]:
    """Return the number, and in milliseconds the median, 99th percentile and longest; None of none."""
    if not delays:
        return {"number": 0, "p50_ms": None, "p99_ms": None, "max_ms": None}
    p99_s = quantile(sorted(delays), 0.99)
    p50, p99, most = (round(1_000 * each) for each in (median(delays), p99_s, max(delays)))
    return {"number": len(delays), "p50_ms": p50, "p99_ms": p99, "max_ms": most}


def _seen(
    episode: Episode, alarms: Iterable[Alarm], metrics: Metrics, earlier: float, until: float
) -> dict[str, list[str]]:
    """Return the alarms that `breached` because of an episode, or watch an age that was `rising` in it.

    The episode, and what follows `until` the next one for `AFTER_S` at most, counts as one period of every
    alarm. One that breaches, or rises, also before it and after the end of the `earlier` one does not count.
    """
    began, ended = episode.began, episode.ended
    before, over = max(earlier, began - BEFORE_S), min(until, ended + AFTER_S)
    half = (ended - began) / 2
    breached, rising = [], []
    for alarm in alarms:
        if alarm.is_breached(metrics, began, over) and not alarm.is_breached(metrics, before, began):
            breached.append(alarm.name)
        if alarm.rises(metrics, began, ended) and not alarm.rises(metrics, began - half, began):
            rising.append(alarm.name)
    return {"breached": breached, "rising": rising}
