"""What happens to an item, and what becomes of it. Every function is safe to repeat, in any order.

One transmission of a key is under way at a time, always with its newest body; what comes meanwhile waits in
the item. Nothing is sent to a device that is not there. Times are Unix milliseconds.
"""

from __future__ import annotations

from dataclasses import replace

from eventplane.contract import Downlink
from eventplane.downlink.addressing import Addressed
from eventplane.downlink.desired import (
    AWAY_MS,
    BACKOFF_MS,
    CHECK_SLACK_MS,
    DEVICE_GONE,
    EXPIRED,
    KEPT_MS,
    LOOK_MS,
    PARKED_MS,
    Desired,
    Ended,
    Message,
    State,
    Step,
    is_known,
    message_of,
    next_turn,
    queued,
    transmission,
    with_newest,
    without_expired,
)
from eventplane.downlink.device import Acknowledgement, Result


def desire(item: Desired | None, thing: str, wanted: Addressed, now_ms: int, is_present: bool) -> Step:
    """An event for `thing` came; `item` is what the table has of its key.

    Raises `DownlinkError` (`too_many_commands`, `version_jump`).
    """
    new = Desired(thing=thing, key=wanted.key, kind=wanted.kind, owner=wanted.sender)
    if item is not None and wanted.accepted_at_ms < item.reset:
        return Step(item, is_older=True)
    if item is not None and not item.owner:
        item = replace(item, owner=wanted.sender)
    take = _command if wanted.kind is Downlink.COMMAND else _state
    step = take(item or new, message_of(wanted), now_ms, is_present)
    return replace(step, item=item) if step.item == new else step


def _state(item: Desired, message: Message, now_ms: int, is_present: bool) -> Step:
    after = with_newest(item, message)
    if after.message != item.message:
        return _accepted(after, now_ms, is_present)
    if after.message is None and after != item:
        return Step(settled(after, State.IDLE, now_ms))
    if after.message and after.message.identity[1:] == message.identity[1:]:
        return _healed(after, now_ms, is_present)
    return Step(after, is_older=after == item)


def _command(item: Desired, message: Message, now_ms: int, is_present: bool) -> Step:
    if is_known(item, message):
        return _healed(item, now_ms, is_present)
    if message.expires_at_ms is not None and message.expires_at_ms <= now_ms:
        return Step(item, ended=(Ended(message, EXPIRED, "it came too late"),))
    is_free = item.message is None
    after = queued(item, message, now_ms)
    if is_free:
        return _accepted(after, now_ms, is_present)
    return _healed(after, now_ms, is_present)


def _accepted(item: Desired, now_ms: int, is_present: bool) -> Step:
    if item.state is State.SENDING:
        # One transmission at a time: the newest goes with its acknowledgement, or with its check.
        return missed(item, now_ms, is_present)
    return transmit(replace(item, attempts=0), now_ms, is_present)


def _healed(item: Desired, now_ms: int, is_present: bool) -> Step:
    """What is there already and did not arrive is tried again: something came for its key."""
    if item.state is State.SENDING:
        return missed(item, now_ms, is_present)
    if item.state is State.IDLE or (item.state is State.PENDING and not is_present):
        return Step(item)
    return transmit(replace(item, attempts=0), now_ms, is_present)


def acknowledge(item: Desired, ack: Acknowledgement, epoch: str, now_ms: int, is_present: bool) -> Step:
    """The device, in its `epoch`, answered an event of this key; other answers change nothing."""
    message = item.message
    named = (ack.version, ack.sender, ack.source, ack.id)
    if message is None or ack.fence != item.fence or ack.order != message.order or item.state is State.IDLE:
        return Step(item)
    is_stored = ack.result is Result.STORED
    if named == message.identity:
        if is_stored:
            return _done(_confirmed(item, message, epoch), now_ms, is_present)
        return _rejected(replace(item, epoch=epoch), ack, now_ms, is_present)
    if named == item.sent:
        # Updates came meanwhile: the device is there and free for the newest.
        known = replace(item, epoch=epoch, attempts=0)
        if is_stored:
            known = replace(known, acknowledged_uid=ack.uid, acknowledged_version=ack.version)
        return transmit(known, now_ms, is_present)
    return Step(item)


def _confirmed(item: Desired, message: Message, epoch: str) -> Desired:
    return replace(
        item, epoch=epoch, acknowledged_uid=message.uid, acknowledged_version=message.version, attempts=0
    )


def _done(item: Desired, now_ms: int, is_present: bool, ended: tuple[Ended, ...] = ()) -> Step:
    """The present message is dealt with."""
    if item.kind is Downlink.STATE:
        return Step(settled(item, State.IDLE, now_ms), ended=ended)
    return transmit(next_turn(replace(item, message=None), now_ms), now_ms, is_present, ended)


def _rejected(item: Desired, ack: Acknowledgement, now_ms: int, is_present: bool) -> Step:
    message = item.message
    if message is None or item.state is State.REJECTED:
        return Step(item)
    # The plane's own ends are not the device's to tell: of one that expired nobody gets a letter.
    reason = "rejected" if ack.reason in ("", EXPIRED, DEVICE_GONE) else ack.reason
    ended = (Ended(message, reason, ack.detail),)
    if item.kind is Downlink.STATE:
        return Step(settled(item, State.REJECTED, now_ms), ended=ended)
    # Whoever corrects the cause and sends it again shall not meet its own memory.
    recent = tuple(each for each in item.recent if each != message.digest)
    return _done(replace(item, recent=recent), now_ms, is_present, ended)


def missed(item: Desired, now_ms: int, is_present: bool) -> Step:
    """The check of a transmission: the next one, with the newest body, if no acknowledgement came."""
    if item.state is not State.SENDING or item.due_at_ms is None or now_ms + CHECK_SLACK_MS < item.due_at_ms:
        return Step(item)
    after, ended = without_expired(item, now_ms)
    if is_present and after.message == item.message and item.attempts >= len(BACKOFF_MS):
        return Step(replace(after, state=State.PARKED, due_at_ms=now_ms + PARKED_MS), ended=ended)
    return transmit(after, now_ms, is_present, ended)


def connected(item: Desired, now_ms: int) -> Step:
    """The device is there, perhaps in a new session: what it has not confirmed goes out, again if need be."""
    if item.state in (State.PENDING, State.PARKED, State.SENDING):
        return transmit(replace(item, attempts=0), now_ms, is_present=True)
    return Step(item)


def forgot(item: Desired, epoch: str, now_ms: int, is_present: bool) -> Step:
    """The device began a new life, `epoch`, with nothing. Told late or twice, it costs a transmission."""
    if item.epoch == epoch or item.message is None:
        return Step(item)
    return transmit(replace(_unconfirmed(item), epoch=epoch), now_ms, is_present)


def reset(item: Desired, number: int, now_ms: int, is_present: bool) -> Step:
    """Begin the versions of a state's key anew, in the reset called `number`: a version from 1 on is newer.

    What the device shall have stays, as version 0, and goes out again, so that the device learns of the
    reset. The key belongs to nobody until its next event. A reset that is not newer than the last one changes
    nothing.
    """
    if number <= item.reset:
        return Step(item)
    anew = replace(
        _unconfirmed(item),
        owner="",
        reset=number,
        message=item.message and replace(item.message, version=0),
        deletes=(),
    )
    return transmit(anew, now_ms, is_present)


def _unconfirmed(item: Desired) -> Desired:
    """Return the item as if nothing had been sent; the new fence turns earlier answers away."""
    return replace(
        item, fence=item.fence + 1, attempts=0, sent=None, acknowledged_uid="", acknowledged_version=None
    )


def reconcile(item: Desired, now_ms: int, is_present: bool, is_known: bool) -> Step:
    """The reconciler looks at a due item. `is_known`: the fleet has the device, and not decommissioned."""
    if not is_known:
        return Step(None, ended=_orphans(item))
    if item.due_at_ms is None or item.due_at_ms > now_ms:
        return Step(item)
    if item.state in (State.IDLE, State.REJECTED):
        return Step(item if item.is_present else None)
    if item.state is State.SENDING:
        return missed(item, now_ms, is_present)
    return transmit(replace(item, attempts=0), now_ms, is_present)


def _orphans(item: Desired) -> tuple[Ended, ...]:
    """The commands that nobody will get any more; a state just goes with its device."""
    if item.kind is Downlink.STATE or item.message is None:
        return ()
    return tuple(
        Ended(each, DEVICE_GONE, "its device left the fleet") for each in (item.message, *item.waiting)
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
