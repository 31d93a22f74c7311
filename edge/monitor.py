"""Stands between the mailbox and the forwarder's loop: what has to happen between two turns happens here.

The loop asks it for messages. So it runs on the loop's thread, may read whatever the loop owns, and knows
that the loop turns. An idle loop is woken for nothing but the service manager's watchdog.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic

from edge.collector import Collector
from edge.contract_updates import ActiveContract
from edge.errors import SettingProblem
from edge.health.snapshots import Snapshot, Snapshots
from edge.health.verdict import Thresholds, judge, summary
from edge.health.watchdog import Watchdog
from edge.mailbox import Mailbox, Message, Reload, Stop
from edge.packing import LONGEST_DELAY_MS, BatchingDelays
from edge.systemd import ServiceManager

_log = logging.getLogger(__name__)

STUCK_PUBACKS = 3
"""How many times the uplink's own patience must pass before its line counts as stuck."""

STUCK_AT_LEAST_S = 60.0
"""And never less than this: a slow pace may leave tens of seconds between two publishes."""


@dataclass(frozen=True, slots=True)
class Hangup:
    """SIGHUP, or a contract that came down: read the contract again."""


@dataclass(frozen=True, slots=True)
class Nudge:
    """Somebody wants a snapshot."""


Posted = Message | Hangup | Nudge


@dataclass(frozen=True, slots=True)
class MonitorOptions:
    """How to read the `contract`, when the device is unwell, and the uplink's patience in seconds."""

    contract: Callable[[], ActiveContract | SettingProblem]
    thresholds: Thresholds
    puback_timeout_s: float


class Monitor:
    """Waits for the loop; `snapshots` is for other threads."""

    def __init__(
        self,
        mailbox: Mailbox[Posted],
        collector: Collector,
        manager: ServiceManager,
        options: MonitorOptions,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self.snapshots = Snapshots(lambda: mailbox.put(Nudge()))
        self._mailbox = mailbox
        self._collector = collector
        self._manager = manager
        self._options = options
        self._now = now
        # Twice within what the manager grants, as sd_watchdog_enabled(3) advises.
        self._watchdog = Watchdog(manager.watchdog_s / 2 if manager.watchdog_s else None, now())
        self._in_service = False
        self._stopping = False
        self._complaint: str | None = None

    def wait(self, timeout_s: float | None) -> Sequence[Message]:
        """What has been reported, after at most `timeout_s` seconds (None: for ever)."""
        self._between_turns(self._now())
        messages = self._mailbox.wait(self._patience(timeout_s))
        self._snapshots_due()
        return [each for each in map(self._take, messages) if each is not None]

    def _snapshots_due(self) -> None:
        self.snapshots.answer(lambda: self._snapshot(self._now()))

    def _between_turns(self, now: float) -> None:
        changed = self._collector.look(now)
        if self._stopping:
            return  # lines that go down now are no news, and the end is bounded in time
        if not self._in_service:
            self._in_service = True
            self._manager.ready(self._status(now))
        elif self._watchdog.is_due(now):
            self._feed(now)
        elif changed:
            self._manager.status(self._status(now))

    def _feed(self, now: float) -> None:
        status = self._status(now)
        if self._complaint is None:
            self._manager.alive(status)
        else:
            _log.error("the watchdog is not fed: %s", self._complaint)
            self._manager.status(status)

    def _patience(self, timeout_s: float | None) -> float | None:
        due = self._watchdog.deadline()
        if due is None:
            return timeout_s
        left_s = max(0.0, due - self._now())
        return left_s if timeout_s is None else min(timeout_s, left_s)

    def _take(self, message: Posted) -> Message | None:
        match message:
            case Nudge():
                return None
            case Hangup():
                return self._reload()
            case Stop():
                self._stopping = True
                self._manager.stopping()
        return message

    def _reload(self) -> Reload | None:
        """The new contract; a broken one is refused, and the old one stays."""
        self._manager.reloading()
        self._in_service = False  # until the turn that applies it is over
        collector = self._collector
        found = self._options.contract()
        if isinstance(found, SettingProblem):
            _log.error(
                "contract %s stays in force, the new one is refused: %s", collector.contract.version, found
            )
            collector.refuse_contract()
            return None
        _log.info("contract %s is followed by %s", collector.contract.version, found.contract.version)
        collector.contract = found.contract
        collector.reloads += 1
        collector.last_reload_refused = False
        if found.refused:
            collector.refuse_contract()
        return Reload(found.contract, found.image)

    def _snapshot(self, now: float) -> Snapshot:
        figures = self._collector.collect(now)
        self._complaint = self._watchdog.complaint(self._collector.progress(), now, self._stuck_after_s())
        return Snapshot(figures, judge(figures, self._options.thresholds, self._complaint))

    def _status(self, now: float) -> str:
        return summary(*self._snapshot(now))

    def _stuck_after_s(self) -> float:
        batching_s = BatchingDelays(self._collector.contract, LONGEST_DELAY_MS).longest_s
        return max(STUCK_AT_LEAST_S, STUCK_PUBACKS * self._options.puback_timeout_s) + batching_s
