"""After healing all ends within a time that the contract implies; what a reconciler had to mend is late."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from edge.settings import CloudSettings
from eventplane.retries import LONGEST_S
from eventplane_client.resequencer import GAP_TIMEOUT_S
from lab.histories.cloud import PLANE
from lab.histories.oracles.finding import OracleFinding
from lab.histories.story import AWAY_S, GIVEN_UP_S, NO_WAY_DOWN_S, ORDERED_INBOX, UNTIL_S, WAY_DOWN_S

if TYPE_CHECKING:
    from lab.histories.history import History

ALARM_S: Final = 60.0
OTHERS_S: Final = LONGEST_S + 300.0
"""After healing, seconds: what waits for its next try, and what waits behind it. For a device's outbox its
batching delay comes on top, and for an inbox that is sorted the wait for what is missing."""

LATE_S: Final = 15.0
"""In a drill, when nothing waits, seconds: what takes longer a repetition or a reconciler had to mend."""

KEEPALIVE_S: Final = CloudSettings(host="cloud").keepalive_s

_STATE: Final = "org.eventplane.home.threshold.v1"

HOME_S: Final = 8.0
"""The same for an alarm within the home."""


def judged(history: History) -> Iterator[OracleFinding]:
    """Look at when each event was handled, and in a drill each desired state and command."""
    replayed = {each.who for each in history.story.decisions if each.what == "replay"}
    for (reader, *key), times in history.handled.done.items():
        known = history.said.get(tuple(key))  # type: ignore[arg-type]
        if known is None:
            continue
        said_s, thing, service, event = known
        is_urgent = ".alarm." in event.type
        since_s, limit_s = max(said_s, history.healed_s), ALARM_S if is_urgent else OTHERS_S
        if said_s > history.drilled_s:
            # What is said while a home is away goes with its first connection, and hurries that.
            is_away = is_urgent and 0.0 < said_s - history.drilled_s - AWAY_S < history.away_s
            back_s = history.drilled_s + AWAY_S + history.away_s
            since_s = back_s if is_away else _reachable(history, thing, said_s)
            since_s, limit_s = max(since_s, history.drilled_s + UNTIL_S), LATE_S
        if not is_urgent:
            limit_s += history.contract.channel(f"{service}.outbox").batching_delay_ms / 1_000
        if history.gives_up:
            limit_s += PLANE.router.visibility_s + 2 * GIVEN_UP_S
        if reader in replayed:
            limit_s += PLANE.replay.visibility_s  # as long as an order of a replay that died is hidden
        if any((each.what, each.who) == ("reader-kill", reader) for each in history.story.decisions):
            limit_s += PLANE.inbox_visibility_s  # as long as what a function began is its own
        if history.story.is_ordered and reader == ORDERED_INBOX:
            limit_s += GAP_TIMEOUT_S + PLANE.inbox_visibility_s
        if times[0] > since_s + limit_s:
            kind = f"late{' alarm' if is_urgent else ''} at {reader}"
            yield OracleFinding(kind, f"{key}: {times[0] - since_s:.0f} s, at most {limit_s:.0f}")
    yield from _late_at_home(history)


def _late_at_home(history: History) -> Iterator[OracleFinding]:
    handled = {
        (thing, name, id): at_s
        for thing, home in history.homes.items()
        for name, service in home.services.items()
        for (*_, id), at_s in service.handled.items()
    }
    for said_s, thing, _, event in history.said.values():
        called_s = handled.get((thing, "call-service", event.id), said_s)
        limit_s = HOME_S if said_s > history.drilled_s else ALARM_S
        if ".alarm." in event.type and called_s > max(said_s, history.healed_s) + limit_s:
            yield OracleFinding("late alarm in the home", f"{event.id}: {called_s - said_s:.0f} s")
    kinds = {number: kind for _, _, kind, number in history.desired}
    down = defaultdict[str, list[tuple[int, float]]](list)
    for (thing, _, id), at_s in handled.items():
        if id.startswith("down-"):
            down[thing].append((int(id.removeprefix("down-")), at_s))
    for said_s, thing, kind, number in history.desired:
        limit_s = max(said_s, history.healed_s) + OTHERS_S
        if said_s > history.drilled_s:
            is_out = said_s > history.drilled_s + NO_WAY_DOWN_S
            began_s = history.drilled_s + WAY_DOWN_S if is_out else 0.0
            limit_s = max(began_s, _reachable(history, thing, said_s)) + LATE_S + history.trouble_s
        if said_s > history.drilled_s + AWAY_S + history.away_s:
            limit_s += 2 * KEEPALIVE_S  # one to ask, one to wait for the answer
        # Of a state that another has followed, that one counts.
        came_s = [
            at_s for id, at_s in down[thing] if id == number or (kind == _STATE == kinds[id] and id > number)
        ]
        if came_s and min(came_s) > limit_s:
            yield OracleFinding("late in the home", f"down-{number}: {min(came_s) - said_s:.0f} s")


def _reachable(history: History, thing: str, at_s: float) -> float:
    """Return from when on a home to which something was said, or that said it, was connected."""
    line, since_s = "connected", at_s
    for changed_s, who, what in history.cloud.iot.connections:
        if who == thing and what != "subscribed":
            if changed_s > at_s and line == "connected":
                break
            line, since_s = what, max(changed_s, at_s)
    return since_s
