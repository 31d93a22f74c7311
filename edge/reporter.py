"""When the forwarder has something to say of itself. Reports are stored and sent like any event.

A report that tells of losses is due at the first of them, and then once a minute: a flood must not be made
worse by what is said about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from edge import reports
from edge.counts import Counts
from edge.decision import Decider, SequenceNumber
from edge.pressure import ROOM
from edge.reports import Heading, NotStored
from edge.spool import BEFORE_EVERYTHING, Arrival, Spool, Statement
from eventplane.contract import Priority
from eventplane.envelope import Envelope

LOSSES_EVERY_S = 60.0
"""Seconds between two reports of losses."""

MANY_LOSSES = 10_000
"""So many losses are told without waiting for the minute to end."""

HEARTBEAT_LIVES = 2
"""After so many intervals a heartbeat is not worth delivering: newer ones say more."""

Figures = Callable[[], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """`thing` names the source; how often to report health and what was stored, in seconds.

    `first_manifest_s` is how old the process is when it states for the first time that nothing new was
    stored: a restart loop must not fill the spool with that.
    """

    thing: str
    heartbeat_s: float
    manifest_interval_s: float
    first_manifest_s: float


@dataclass(slots=True)
class Reports:
    """Reports to store in one commit, and what that commit closes because they tell it."""

    arrivals: list[Arrival] = field(default_factory=list)
    started: bool = False
    losses: bool = False
    not_stored: Mapping[NotStored, int] = field(default_factory=dict)
    manifest: bool = False
    heartbeat: bool = False


class Reporter:
    """Makes the reports of one `spool` as they fall due, from `now` on. Times are monotonic seconds."""

    def __init__(
        self, options: ReportOptions, spool: Spool, counts: Counts, figures: Figures, now: float
    ) -> None:
        self._options = options
        self._spool = spool
        self._counts = counts
        self._figures = figures
        self._started_due = spool.birth.kind != "resumed"
        self._losses_at = now
        self._losses_left = bool(spool.discards())
        # One event may be the last manifest itself.
        news = sum(each.count for each in spool.statements()) > 1
        self._manifest_at = now if news else now + min(options.first_manifest_s, options.manifest_interval_s)
        self._heartbeat_at = now + options.heartbeat_s
        self._not_before = now

    def deadline(self) -> float:
        """When the next report is due."""
        due = [self._manifest_at, self._heartbeat_at]
        if self._started_due:
            due.append(self._not_before)
        if self._has_losses:
            due.append(self._losses_due_at())
        return max(self._not_before, min(due))

    def due(self, intake: Decider, slot: SequenceNumber, now: float) -> Reports:
        """What to store now, numbered from `slot` on."""
        made = Reports()
        counted = dict(slot.counted)
        if now < self._not_before:
            return made

        def add(write: Callable[[Heading], Envelope], lifetime: int | None = None) -> None:
            place = SequenceNumber(slot.sequence + len(made.arrivals), slot.life_ms, counted)
            heading = Heading(self._options.thing, self._spool.epoch, place.sequence, intake.timestamp())
            arrival = intake.own(write(heading), place, lifetime)
            made.arrivals.append(arrival)
            counted.update(arrival.positions)

        if self._started_due:
            made.started = True
            add(lambda heading: reports.started(heading, self._spool.birth))
        # What nobody wanted is no loss: it is told with the next one, or with what the device stored.
        is_time = now >= self._manifest_at and bool(self._counts.not_stored)
        if is_time or (self._has_losses and now >= self._losses_due_at()):
            made.losses, made.not_stored = True, dict(self._counts.not_stored)
            add(lambda heading: reports.discarded(heading, self._spool.discards(), made.not_stored))
        if now >= self._manifest_at:
            made.manifest = True
            statements = self._statements(intake.destinations)
            names = (each.destination for each in statements)
            acknowledged_to = {name: self._spool.acknowledged_to(name) for name in names}
            add(lambda heading: reports.manifest(heading, statements, acknowledged_to))
        if now >= self._heartbeat_at:
            made.heartbeat = True
            every_s = self._options.heartbeat_s
            # It is only worth room that nobody else wants.
            if self._spool.pressure < ROOM[Priority.LOW.rank]:
                lifetime = round(HEARTBEAT_LIVES * every_s * 1000)
                add(lambda heading: reports.heartbeat(heading, every_s, self._figures()), lifetime)
        return made

    def stored(self, made: Reports, now: float) -> None:
        """The commit with `made` is on the disk."""
        if made.started:
            self._started_due = False
        if made.losses:
            self._counts.told(made.not_stored)
            self._losses_at = now + LOSSES_EVERY_S
            # Of a very long list only a part was told.
            self._losses_left = bool(self._spool.discards())
        if made.manifest:
            self._manifest_at = now + self._options.manifest_interval_s
        if made.heartbeat:
            self._heartbeat_at = now + self._options.heartbeat_s

    def put_off(self, now: float) -> None:
        """There is no room for reports."""
        self._not_before = now + LOSSES_EVERY_S

    def _statements(self, destinations: Iterable[str]) -> list[Statement]:
        """What was stored for each of `destinations` since the last manifest, and for any other."""
        stated = {each: self._nothing_for(each) for each in destinations}
        stated |= {each.destination: each for each in self._spool.statements()}
        return list(stated.values())

    def _nothing_for(self, destination: str) -> Statement:
        """An empty range behind the newest that was ever stored for it."""
        newest = max(self._spool.newest(destination, each.rank) for each in Priority)
        last = 0 if newest == BEFORE_EVERYTHING else newest
        return Statement(destination, last + 1, last, 0, 0)

    @property
    def _has_losses(self) -> bool:
        return self._losses_left or self._counts.untold > 0

    def _losses_due_at(self) -> float:
        return self._not_before if self._counts.untold >= MANY_LOSSES else self._losses_at
