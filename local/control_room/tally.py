"""What was sent and what arrived: the control room's counters, and where each of the last events went."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from statistics import median
from typing import Final

from contract.explain import Outcome, outcomes
from eventplane.contract import Contract
from eventplane.envelope import Envelope
from eventplane.filters import filter_text
from eventplane.names import OWN_SERVICES

Key = tuple[str, str]
"""What identifies an event: `source` and `id`."""

MOST_EVENTS: Final = 50
"""Events that a state shows."""

MOST_OPEN: Final = 20_000
"""Events that are remembered, to recognise copies and late arrivals. The oldest are forgotten first."""

MOST_SAMPLES: Final = 1_000
"""Latencies that the median and the 99th percentile are of, the last ones."""

PATIENCE_MS: Final = 60_000
"""A missing event counts as lost after so long in which nothing was broken and nothing waited."""


@dataclass(frozen=True, slots=True)
class Counters:
    """Events `sent`; `due` deliveries to inboxes, and how many of them were `received` or `lost`.

    `duplicates` are copies beyond the first, which consumers drop; `waiting` are deliveries in the spool.
    """

    sent: int = 0
    due: int = 0
    received: int = 0
    lost: int = 0
    duplicates: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class Latency:
    """From sending to an inbox, over the last `samples` deliveries, in ms; None of none."""

    samples: int = 0
    last_ms: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None


Routes = tuple[tuple[str, str], ...]
"""Names and conditions of the routes on an event's way; empty where no route of the contract leads."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One inbox that is due an event: `after_ms` sending it arrived (None: not yet), so often (`copies`).

    `routes` are those that take it there, in their order, each with its condition in words.
    """

    inbox: str
    routes: Routes
    after_ms: float | None
    copies: int


@dataclass(frozen=True, slots=True)
class Followed:
    """One event and where it goes; `nobody` is the reason if it goes nowhere. `sent_ms` is Unix time."""

    source: str
    id: str
    type: str
    priority: str
    sent_ms: float
    deliveries: tuple[Delivery, ...]
    nobody: str = ""


@dataclass(slots=True)
class _Sent:
    """What is known of an event; `arrived` is when by inbox, `copies` how often."""

    event: Envelope | None = None
    priority: str = ""
    sent_ms: float = 0.0
    due: Mapping[str, Routes] = field(default_factory=dict)
    nobody: str = ""
    arrived: dict[str, float] = field(default_factory=dict)
    copies: dict[str, int] = field(default_factory=dict)


class Tally:
    """Compare what was sent with what arrived, by the contract. Safe for threads.

    An arrival may be recorded before its sending, by another observer.
    """

    def __init__(self, contract: Contract) -> None:
        self._lock = threading.Lock()
        self._contract = contract
        self._events: OrderedDict[Key, _Sent] = OrderedDict()
        self._latencies: deque[float] = deque(maxlen=MOST_SAMPLES)
        self._sent = self._due = self._received = self._duplicates = 0
        self._quiet_since_ms: float | None = None
        self._lost: set[tuple[Key, str]] = set()

    def take_contract(self, contract: Contract) -> None:
        """Judge what is sent from now on by `contract`."""
        with self._lock:
            self._contract = contract

    def sent(self, event: Envelope, sender: str, now_ms: float) -> None:
        """Note that the service `sender` sent `event`. A second sending of the same event is not counted."""
        with self._lock:
            contract = self._contract
            if self._known((event.source, event.id)).event is not None:
                return
        due, nobody = due_inboxes(contract, event, sender)
        participant = contract.participants.get(sender)
        channel = participant.outbox if participant else contract.device.outbox
        with self._lock:
            known = self._known((event.source, event.id))
            if known.event is not None:
                return
            known.event, known.sent_ms, known.due, known.nobody = event, now_ms, due, nobody
            known.priority = contract.priority(event, channel).value
            self._sent += 1
            self._due += len(due)
            for inbox, at_ms in known.arrived.items():
                self._count(known, inbox, at_ms)

    def received(self, inbox: str, key: Key, now_ms: float) -> None:
        """Note that the event `key` arrived at the participant `inbox`."""
        with self._lock:
            known = self._known(key)
            known.copies[inbox] = known.copies.get(inbox, 0) + 1
            if inbox in known.arrived:
                self._duplicates += 1
                return
            known.arrived[inbox] = now_ms
            self._lost.discard((key, inbox))
            if known.event is not None:
                self._count(known, inbox, now_ms)

    def counters(self, waiting: int, is_idle: bool, now_ms: float) -> Counters:
        """Return the counters. `is_idle`: nothing is broken, and no queue has a message.

        What is missing once the plane was idle for `PATIENCE_MS` counts as lost, until it arrives after all.
        """
        with self._lock:
            if not is_idle or waiting:
                self._quiet_since_ms = None
            elif self._quiet_since_ms is None:
                self._quiet_since_ms = now_ms
            if self._quiet_since_ms is not None and now_ms - self._quiet_since_ms >= PATIENCE_MS:
                self._lost |= {
                    (key, inbox)
                    for key, each in self._events.items()
                    if now_ms - each.sent_ms >= PATIENCE_MS
                    for inbox in each.due.keys() - each.arrived.keys()
                }
            return Counters(self._sent, self._due, self._received, len(self._lost), self._duplicates, waiting)

    def latency(self) -> Latency:
        """Return how long the last deliveries took."""
        with self._lock:
            values = list(self._latencies)
        if not values:
            return Latency()
        ordered = sorted(values)
        p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
        return Latency(len(values), values[-1], median(ordered), p99)

    def last(self) -> tuple[Followed, ...]:
        """Return the last events, the newest first."""
        with self._lock:
            newest = (each for each in reversed(self._events.values()) if each.event is not None)
            return tuple(_followed(each, each.event) for each in islice(newest, MOST_EVENTS) if each.event)

    def _known(self, key: Key) -> _Sent:
        if key not in self._events:
            while len(self._events) >= MOST_OPEN:
                self._events.popitem(last=False)
            self._events[key] = _Sent()
        return self._events[key]

    def _count(self, known: _Sent, inbox: str, at_ms: float) -> None:
        if inbox in known.due:
            self._received += 1
            self._latencies.append(max(0.0, at_ms - known.sent_ms))


def due_inboxes(contract: Contract, event: Envelope, sender: str) -> tuple[dict[str, Routes], str]:
    """Return the participants that the contract sends `event` to, each with its routes, and why nobody is.

    Inboxes that the plane's own functions read are left out: arrivals there cannot be seen.
    """
    found: Sequence[Outcome] = outcomes(contract, event, sender)
    due = {
        receipt.channel.participant: tuple(
            (each.route.name, filter_text(each.route.filter)) for each in receipt.hops
        )
        for outcome in found
        for receipt in outcome.receipts
        if receipt.channel.participant not in OWN_SERVICES
    }
    problems = [f"{each.problem}; {each.remedy}" for each in found if each.problem]
    return due, "" if due else "; ".join(problems)


def _followed(known: _Sent, event: Envelope) -> Followed:
    unexpected: dict[str, Routes] = dict.fromkeys(known.arrived.keys() - known.due.keys(), ())
    deliveries = tuple(
        Delivery(
            inbox,
            routes,
            max(0.0, known.arrived[inbox] - known.sent_ms) if inbox in known.arrived else None,
            known.copies.get(inbox, 0),
        )
        for inbox, routes in {**known.due, **unexpected}.items()
    )
    return Followed(
        event.source, event.id, event.type, known.priority, known.sent_ms, deliveries, known.nobody
    )
