"""One more transmission of an item, or none: its device is away, or there is nothing left to send."""

from __future__ import annotations

from dataclasses import replace

from eventplane.downlink.commands import without_expired
from eventplane.downlink.desired import (
    AWAY_MS,
    BACKOFF_MS,
    KEPT_MS,
    LOOK_MS,
    Desired,
    Ended,
    State,
    Step,
    transmission,
)


def transmit(item: Desired, now_ms: int, is_present: bool, ended: tuple[Ended, ...] = ()) -> Step:
    """The next transmission of what is the newest now; `ended` is what ended before."""
    item, expired = without_expired(item, now_ms)
    ended += expired
    message = item.message
    if message is None:
        return Step(settled(item, State.IDLE, now_ms), ended=ended)
    if not is_present:
        due_at_ms = min([now_ms + (AWAY_MS if item.state is State.PENDING else LOOK_MS), *_ends(item)])
        return Step(replace(item, state=State.PENDING, attempts=0, due_at_ms=due_at_ms), ended=ended)
    wait_ms = BACKOFF_MS[min(item.attempts, len(BACKOFF_MS) - 1)]
    item = replace(
        item,
        state=State.SENDING,
        attempts=item.attempts + 1,
        sent=message.identity,
        due_at_ms=now_ms + wait_ms,
    )
    return Step(item, publish=transmission(item, message), ended=ended)


def settled(item: Desired, state: State, now_ms: int) -> Desired:
    """`item` with nothing left to send."""
    # A live state stays as it is; a tombstone, and what remembers commands, has its time. What was reset is
    # remembered for good: a device that has heard of the reset takes nothing without it.
    due_at_ms = None if item.is_present or item.reset else now_ms + KEPT_MS
    return replace(item, state=state, attempts=0, sent=None, due_at_ms=due_at_ms)


def _ends(item: Desired) -> list[int]:
    messages = [each for each in (item.message, *item.waiting) if each]
    return [each.expires_at_ms for each in messages if each.expires_at_ms is not None]
