"""When something is to be said of a device, and what. Pure: the moment is a parameter.

A state that stands long enough is reported, one that does not is never known: that is the whole debounce.
Nothing here waits; `due_ms` says when to ask again, and asking too often or too late changes no answer but
its time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from eventplane import names
from eventplane.presence import (
    Flood,
    Heartbeat,
    Held,
    Incident,
    Level,
    Line,
    PresenceItem,
    PresenceLimits,
    Quiet,
    QuietReason,
)
from eventplane.traffic import KINDS
from parts.presence.reports import OPENED, OVER, WORSENED, StateReport, notice_of

AT_ONCE = 0
"""Due before everything else, in Unix milliseconds."""

CAUSES = {
    "CLIENT_INITIATED_DISCONNECT": "shut_down",
    "DUPLICATE_CLIENTID": "replaced",
    "AUTH_ERROR": "refused",
    "CLIENT_ERROR": "refused",
    "CUSTOMAUTH_TTL_EXPIRATION": "refused",
    "FORBIDDEN_ACCESS": "refused",
    "THROTTLED": "refused",
}
"""Why a connection ended in terms of what can be done, by IoT Core's word (AWS IoT Developer Guide, lifecycle
events). All other words, and new ones, mean that it was `lost`."""

LOST = "lost"


class Watcher:
    """Judges devices by `limits`."""

    def __init__(self, limits: PresenceLimits) -> None:
        self._limits = limits

    def due_ms(self, state: PresenceItem) -> int | None:
        """When the state has to be judged next, Unix milliseconds; None: not before something is observed."""
        if state.unsent:
            return AT_ONCE
        due = [self._settled_ms(state), self._silent_ms(state), self._flood_ms(state)]
        if state.heartbeat and self._is_quiet_news(state, state.heartbeat.at_ms):
            due.append(state.heartbeat.at_ms)
        return min((each for each in due if each is not None), default=None)

    def judge(
        self, state: PresenceItem, now_ms: int, is_outage: Callable[[], bool] = lambda: False
    ) -> PresenceItem:
        """The state with what is to be said at `now_ms` among its `unsent`; the same one if that is nothing.

        In an outage a notice is held back. It is asked about only where there is one.

        While events wait to be sent nothing new is decided: they must not overtake each other.
        """
        if state.unsent:
            return state
        reports: list[StateReport] = []
        for step in (self._line, self._quiet, self._flood, self._incident):
            before = state
            state, report = step(state, now_ms)
            if report and report.type == names.NOTICE and (_is_held(before) or is_outage()):
                state = _hold(state, report.data, now_ms)
            elif report:
                reports.append(report)
        unsent = (each.write(state.device, state.revision, now_ms) for each in reports)
        return replace(state, unsent=tuple(unsent))

    def _line(self, state: PresenceItem, now_ms: int) -> tuple[PresenceItem, StateReport | None]:
        settled_ms, seen = self._settled_ms(state), state.sighting
        if seen is None or settled_ms is None or now_ms < settled_ms:
            return state, None
        data: dict[str, Any] = {"session": seen.session}
        if seen.line is Line.DISCONNECTED:
            data |= {"reason": CAUSES.get(seen.cause, LOST), "cause": seen.cause or "UNKNOWN"}
            report = StateReport(names.DISCONNECTED, seen.at_ms, data)
        else:
            if state.reported is Line.DISCONNECTED:
                data["away_s"] = _seconds_between(state.reported_ms, seen.at_ms)
            report = StateReport(names.CONNECTED, seen.at_ms, data)
        return replace(state, reported=seen.line, reported_ms=seen.at_ms), report

    def _quiet(self, state: PresenceItem, now_ms: int) -> tuple[PresenceItem, StateReport | None]:
        beat = state.heartbeat
        if beat is None or not self._is_quiet_news(state, now_ms):
            return state, None
        if state.quiet:
            quiet_s = _seconds_between(state.quiet.since_ms, beat.at_ms)
            data: dict[str, Any] = {"reason": state.quiet.reason, "quiet_s": quiet_s}
            return replace(state, quiet=None), StateReport(names.RECOVERED, beat.at_ms, data)
        reason = self._problem(state, beat, now_ms)
        assert reason is not None  # noqa: S101 - or it would be no news
        data = {
            "reason": reason,
            "oldest_urgent_s": beat.oldest_urgent_s,
            "oldest_normal_s": beat.oldest_normal_s,
        }
        quiet = Quiet(reason, beat.at_ms)
        return replace(state, quiet=quiet, quiet_at_ms=now_ms), StateReport(names.QUIET, quiet.since_ms, data)

    def _flood(self, state: PresenceItem, now_ms: int) -> tuple[PresenceItem, StateReport | None]:
        """Report when a flood begins; it goes on for as long as each window has more than the quota."""
        due_ms, traffic, window_ms = self._flood_ms(state), state.traffic, self._limits.quota.window_ms
        if due_ms is None or now_ms < due_ms:
            return state, None
        if traffic is None or not self._is_flood_news(state):
            return replace(state, traffic=None, flood=None), None
        since_ms = traffic.window * window_ms
        if state.flood:
            return replace(state, flood=replace(state.flood, window=traffic.window)), None
        data = {
            "window_s": self._limits.quota.window_s,
            **{each: getattr(traffic, each) for each in KINDS},
            "exceeded": self._limits.quota.exceeded(traffic),
        }
        flood = Flood(since_ms, traffic.window)
        return replace(state, flood=flood), StateReport(names.FLOODING, since_ms, data)

    def _incident(self, state: PresenceItem, now_ms: int) -> tuple[PresenceItem, StateReport | None]:
        """One notice when something goes wrong, one each time it gets worse, one when all is well."""
        open_, level = state.incident, state.level
        if level is Level.WELL if open_ is None else Level.WELL < level <= open_.level:
            return state, None
        if open_ and level is Level.WELL:
            return replace(state, incident=None), notice_of(state.device, open_, OVER, now_ms)
        reason, since_ms = self._wrong(state)
        incident = Incident(open_.id if open_ else f"{state.device}.{now_ms}", level, reason)
        phase = WORSENED if open_ else OPENED
        return replace(state, incident=incident), notice_of(state.device, incident, phase, since_ms)

    def _wrong(self, state: PresenceItem) -> tuple[str, int]:
        """The reason for the state's level, and since when, Unix milliseconds."""
        if state.level is Level.QUIET and state.quiet:
            return state.quiet.reason, state.quiet.since_ms
        cause = state.sighting.cause if state.sighting else ""
        return CAUSES.get(cause, LOST), state.reported_ms

    def _settles_ms(self, line: Line) -> int:
        """How long a connection, or its absence, stands before it is reported, milliseconds."""
        is_connected = line is Line.CONNECTED
        seconds = self._limits.connected_after_s if is_connected else self._limits.disconnected_after_s
        return round(1_000 * seconds)

    def _settled_ms(self, state: PresenceItem) -> int | None:
        """When what was seen last has stood long enough to be reported; None when it is known already."""
        seen = state.sighting
        if seen is None or seen.line is state.reported:
            return None
        return seen.at_ms + self._settles_ms(seen.line)

    def _silent_ms(self, state: PresenceItem) -> int | None:
        """When a device that is not quiet yet will have been silent for too long."""
        beat = state.heartbeat
        if beat is None or beat.interval_s == 0 or state.quiet or not _is_connected(state):
            return None
        return self._silence_ends_ms(state, beat)

    def _flood_ms(self, state: PresenceItem) -> int | None:
        """When a flood begins, goes on, or is over: it is when a whole window had less than the quota."""
        window_ms = self._limits.quota.window_ms
        if self._is_flood_news(state) and state.traffic:
            return state.traffic.window * window_ms
        return (state.flood.window + 2) * window_ms if state.flood else None

    def _is_flood_news(self, state: PresenceItem) -> bool:
        """Whether a window that was not known yet has more than the quota."""
        traffic, flood = state.traffic, state.flood
        if traffic is None or (flood is not None and traffic.window <= flood.window):
            return False
        return bool(self._limits.quota.exceeded(traffic))

    def _is_quiet_news(self, state: PresenceItem, now_ms: int) -> bool:
        """Whether a connected device became quiet, or a quiet one is well again."""
        beat = state.heartbeat
        if beat is None or not _is_connected(state):
            return False
        if state.quiet is None:
            return self._problem(state, beat, now_ms) is not None
        # Well is only who has said so since; that it may be silent again is the next report's matter. If it
        # were well at once, one that complains with every other heartbeat would be an incident each time.
        well_ms = state.quiet.since_ms + self._settles_ms(Line.CONNECTED)
        return beat.at_ms > well_ms and self._problem(state, beat, beat.at_ms) is None

    def _problem(self, state: PresenceItem, beat: Heartbeat, now_ms: int) -> QuietReason | None:
        if beat.interval_s and now_ms >= self._silence_ends_ms(state, beat):
            return QuietReason.NO_HEARTBEAT
        # What is old because the line was down is no problem while the line is new; and a backlog about the
        # limit would be a new incident with every heartbeat if it ended where it began.
        line_s = _seconds_between(_connected_ms(state), beat.at_ms)
        share = 0.5 if state.quiet else 1.0
        for oldest_s, limit_s in (
            (beat.oldest_urgent_s, self._limits.oldest_urgent_s),
            (beat.oldest_normal_s, self._limits.oldest_normal_s),
        ):
            if min(oldest_s, line_s) > share * limit_s:
                return QuietReason.BACKLOG_OLD
        return None

    def _silence_ends_ms(self, state: PresenceItem, beat: Heartbeat) -> int:
        last_ms = max(beat.at_ms, _connected_ms(state))
        return last_ms + round(1_000 * self._limits.quiet_after_heartbeats * beat.interval_s)


def _is_held(state: PresenceItem) -> bool:
    """Whether the next notice follows one that is held back, or was sent as one of many."""
    return state.held is not None or state.is_listed


def _hold(state: PresenceItem, data: Mapping[str, Any], now_ms: int) -> PresenceItem:
    """Hold the notice with `data` back, in one with what is held already.

    Of an incident that carers were not told of they need not be told that it is over, and one whose end they
    were not told of goes on.
    """
    held, phase, incident = state.held, data["phase"], data["incident"]
    if held and held.phase == OPENED:
        return replace(state, held=None) if phase == OVER else state
    if held and held.phase == OVER and state.incident:
        phase, incident = WORSENED, held.incident
        state = replace(state, incident=replace(state.incident, id=incident))
    return replace(state, held=Held(phase, incident, held.at_ms if held else now_ms))


def _is_connected(state: PresenceItem) -> bool:
    """Whether it can be expected to say something: a heartbeat alone tells of a connection, too."""
    return state.sighting is None or state.sighting.line is Line.CONNECTED


def _connected_ms(state: PresenceItem) -> int:
    return state.sighting.at_ms if state.sighting else 0


def _seconds_between(earlier_ms: int, later_ms: int) -> float:
    return max(0, later_ms - earlier_ms) / 1_000
