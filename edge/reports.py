"""The forwarder's reports about itself, and when they are due. They are stored and sent like any event."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from edge.counts import Counts, NotStored
from edge.decision import Decider, SequenceNumber
from edge.errors import SpoolError
from edge.planning import ROOM
from edge.settings import Settings
from edge.spool import BEFORE_EVERYTHING, LossReport, Manifest, SpoolOrigin, StoredEvent
from edge.spool.store import Spool
from eventplane.contract import Priority
from eventplane.device_reports import (
    DISCARDED,
    DISK_FAILED,
    HEARTBEAT,
    MANIFEST,
    SHA256_EVENT,
    STARTED,
    STATED_PENDING,
    forwarder_source,
)
from eventplane.envelope import Envelope, write_event

LOSSES_EVERY_S = 60.0
"""Seconds between two reports of losses."""

MANY_LOSSES = 10_000
"""So many losses are reported without waiting for the minute to end."""

FIRST_REPORT_S = 60.0
"""Age of the process, seconds, at which it sends its first heartbeat and reports for the first time that
nothing new was stored: a restart loop must not fill the spool with that."""

DISK_FAILED_SEVERITY = 21
"""FATAL in the CloudEvents severity extension: routers treat it as urgent under any contract."""

HEARTBEAT_LIFETIMES = 2
"""After so many intervals a heartbeat expires: newer ones say more."""

Heartbeat = Callable[[], Mapping[str, float | str]]
"""Returns what a heartbeat reports."""


class Heading(NamedTuple):
    """The attributes of a report of the device `thing`; `number` makes its id within the spool's `epoch`."""

    thing: str
    epoch: str
    number: int
    time: str

    def write(self, type: str, data: Mapping[str, Any], **more: int) -> Envelope:
        """Return the event, with `more` attributes."""
        attributes: dict[str, str | int | bool] = {
            "id": f"{self.epoch}-{self.number}",
            "source": forwarder_source(self.thing),
            "type": type,
            "time": self.time,
            **more,
        }
        return write_event(attributes, data)


def started(heading: Heading, origin: SpoolOrigin) -> Envelope:
    """Return the report that a spool was created or recovered."""
    data = origin._asdict()
    return heading.write(STARTED, {"birth": data.pop("kind"), "epoch": heading.epoch, **data})


def discarded(
    heading: Heading, tallies: Sequence[LossReport], not_stored: Mapping[NotStored, int]
) -> Envelope:
    """Return the report of what was not delivered, and not even stored, since the last such report."""
    counted = [{**each._asdict(), "count": count} for each, count in not_stored.items()]
    return heading.write(DISCARDED, {"deliveries": list(map(asdict, tallies)), "not_stored": counted})


def manifest(
    heading: Heading,
    statements: Sequence[Manifest],
    acknowledged_to: Mapping[str, int],
    interval_s: float,
    *,
    pending: Mapping[str, Sequence[int]] | None = None,
    contract: str | None = None,
    is_final: bool = False,
) -> Envelope:
    """Return the report of what was stored since the last manifest, also where that is nothing.

    `acknowledged_to` has for each destination the number up to which no delivery is pending; a destination
    that is not in it is stated without one. `pending` has the lowest numbers that are. All was decided by the
    version `contract` (None: unknown, or several). The next manifest is due after `interval_s` s, unless
    the forwarder stops and stores nothing behind it (`is_final`).
    """
    stated = [{**asdict(each), "digest": f"{each.digest or 0:032x}"} for each in statements]
    for each in stated:
        if each["destination"] in acknowledged_to:
            each["acknowledged_to"] = acknowledged_to[each["destination"]]
        if numbers := (pending or {}).get(each["destination"]):
            each["pending"] = numbers
    data = {
        "epoch": heading.epoch,
        "interval_s": math.ceil(interval_s),
        # Without it the audit compares no digests.
        **({} if any(each.digest is None for each in statements) else {"key_digest": SHA256_EVENT}),
        "statements": stated,
        **({"contract": contract} if contract else {}),
    }
    return heading.write(MANIFEST, {**data, "final": True} if is_final else data)


def heartbeat(heading: Heading, interval_s: float, figures: Mapping[str, Any]) -> Envelope:
    """Return the report that the device is alive, with its metrics."""
    return heading.write(HEARTBEAT, {"interval_s": interval_s, "figures": figures})


def disk_failed(heading: Heading, failure: SpoolError, for_s: float) -> Envelope:
    """Return the urgent report that for `for_s` seconds nothing could be stored, because of `failure`."""
    data = {"problem": failure.problem, "remedy": failure.remedy, "for_s": round(for_s)}
    return heading.write(DISK_FAILED, data, severitynumber=DISK_FAILED_SEVERITY)


@dataclass(slots=True)
class Reports:
    """Reports to store in one commit, and what that commit closes because they contain it."""

    arrivals: list[StoredEvent] = field(default_factory=list)
    started: bool = False
    losses: bool = False
    not_stored: Mapping[NotStored, int] = field(default_factory=dict)
    manifest: bool = False
    heartbeat: bool = False


class Reporter:
    """Makes the reports of one `spool` as they fall due, from `now` on. Times are monotonic seconds.

    Losses are reported at the first of them, and then once a minute: a report for each must not make a flood
    worse.
    """

    def __init__(
        self,
        settings: Settings,
        spool: Spool,
        counts: Counts,
        heartbeat: Heartbeat,
        now: float,
        first_report_s: float = FIRST_REPORT_S,
    ) -> None:
        self._settings = settings
        self._spool = spool
        self._counts = counts
        self._heartbeat = heartbeat
        self._started_due = spool.origin.kind != "resumed"
        self._losses_at = now
        self._losses_left = bool(spool.loss_reports())
        # One event may be the last manifest itself.
        news = sum(each.count for each in spool.manifests()) > 1
        self._manifest_at = now if news else now + min(first_report_s, settings.manifest_interval_s)
        self._heartbeat_at = now + min(first_report_s, settings.heartbeat_s)
        self._not_before = now
        self._last_due_at = now + first_report_s
        self._is_last = False
        self._versions = {"": True}  # of the contract since the last manifest; unknown before the start

    def deadline(self) -> float:
        """Return when the next report is due."""
        due = min(self._manifest_at, self._heartbeat_at, self._losses_due_at())
        return self._not_before if self._started_due else max(self._not_before, due)

    def due(self, decider: Decider, number: SequenceNumber, now: float) -> Reports:
        """Return what to store now, numbered from `number` on."""
        made = Reports()
        self._versions[decider.version] = True
        if now < self.deadline():
            return made
        counted = dict(number.counted)

        def add(write: Callable[[Heading], Envelope], lifetime: int | None = None) -> None:
            sequence = number.sequence + len(made.arrivals)
            heading = Heading(self._settings.thing, self._spool.epoch, sequence, decider.timestamp())
            report = write(heading)
            arrival = decider.own(report, SequenceNumber(sequence, number.uptime_ms, counted), lifetime)
            made.arrivals.append(arrival)
            counted.update(arrival.positions)

        if self._started_due:
            made.started = True
            add(lambda heading: started(heading, self._spool.origin))
        # Unwanted deliveries are no loss: they are reported with the next loss, or with the manifest.
        is_time = now >= self._manifest_at and bool(self._counts.not_stored)
        if is_time or now >= self._losses_due_at():
            made.losses, made.not_stored = True, dict(self._counts.not_stored)
            add(lambda heading: discarded(heading, self._spool.loss_reports(), made.not_stored))
        if now >= self._manifest_at:
            made.manifest = True
            statements = self._manifests(decider.destinations)
            names, most = [each.destination for each in statements], STATED_PENDING // len(statements)
            pending = {name: self._spool.first_pending(name, max(1, most)) for name in names}
            to = {name: min(each, default=self._spool.next_sequence) - 1 for name, each in pending.items()}
            contract = decider.version if len(self._versions) == 1 else None
            more: Any = {"pending": pending, "contract": contract, "is_final": self._is_last}
            add(lambda heading: manifest(heading, statements, to, self._settings.manifest_interval_s, **more))
        if now >= self._heartbeat_at and not self._is_last:
            made.heartbeat = True
            every_s = self._settings.heartbeat_s
            # A heartbeat gets room only while events of every priority do.
            if self._spool.space.pressure < ROOM[Priority.LOW.rank]:
                lifetime = round(HEARTBEAT_LIFETIMES * every_s * 1000)
                add(lambda heading: heartbeat(heading, every_s, self._heartbeat()), lifetime)
        return made

    def stored(self, made: Reports, now: float) -> None:
        """Note that the commit with `made` is on the disk."""
        if made.started:
            self._started_due = False
        if made.losses:
            self._counts.reported(made.not_stored)
            self._losses_at = now + LOSSES_EVERY_S
            # Of a very long list only a part was reported.
            self._losses_left = bool(self._spool.loss_reports())
        if made.manifest:
            self._manifest_at = now + self._settings.manifest_interval_s
            self._versions = dict([self._versions.popitem()])  # what came with it is in the next one
        if made.heartbeat:
            self._heartbeat_at = now + self._settings.heartbeat_s

    def report_losses(self, now: float) -> None:
        """Let losses be reported now: the forwarder stops."""
        self._losses_at = min(self._losses_at, now)

    def state_last(self, now: float) -> bool:
        """Let the next commit state a last manifest and nothing else; return whether there is reason to.

        A restart loop must not fill the spool with manifests of nothing.
        """
        if now < self._last_due_at and sum(each.count for each in self._spool.manifests()) <= 1:
            return False
        self._is_last = True
        self._manifest_at = now
        self._losses_at = math.inf
        return True

    def put_off(self, now: float) -> None:
        """Note that there is no room for reports now."""
        self._not_before = now + LOSSES_EVERY_S

    def _manifests(self, destinations: Iterable[str]) -> list[Manifest]:
        """Return what was stored since the last manifest, for each of `destinations` and for any other."""
        stated = {each: self._nothing_for(each) for each in destinations}
        stated |= {each.destination: each for each in self._spool.manifests()}
        return list(stated.values())

    def _nothing_for(self, destination: str) -> Manifest:
        """Return an empty range behind the newest event that was ever stored for it."""
        newest = max(self._spool.newest(destination, each.rank) for each in Priority)
        last = 0 if newest == BEFORE_EVERYTHING else newest
        return Manifest(destination, last + 1, last, 0, 0)

    def _losses_due_at(self) -> float:
        if not self._losses_left and not self._counts.unreported:
            return math.inf
        return self._not_before if self._counts.unreported >= MANY_LOSSES else self._losses_at
