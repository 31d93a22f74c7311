"""The state transitions of an item: what each event, answer and check changes and requires.

Every function is safe to repeat, in any order. One transmission of a key is in flight at a time, always with
its newest body; later updates wait in the item. Nothing is sent to a device that is not connected. Times are
Unix milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from eventplane.contract import Downlink
from eventplane.downlink.addressing import Addressed
from eventplane.downlink.desired import (
    Desired,
    Ended,
    KeyedEvent,
    Phase,
    queued,
    transmission,
    with_newest,
    with_next_command,
    without_expired,
)
from eventplane.downlink.device import Acknowledgement, AckStatus
from eventplane.reasons import Outcome, Reason

BACKOFF_MS: Final = (5_000, 10_000, 20_000, 40_000, 80_000)
"""How long each transmission waits for its acknowledgement, milliseconds. Five transmissions and the first
wait of 5 s are KubeEdge's; doubling is ours: more frequent requests do not help a slow device."""

CHECK_SLACK_MS: Final = 500
"""How much before its time a check counts, milliseconds: the clocks of functions differ by less."""

PARKED_MS: Final = 15 * 60 * 1_000
"""After how long the reconciler tries a parked delivery again, milliseconds. Ours."""

LOOK_MS: Final = 60 * 1_000
"""How soon the reconciler looks at an item that has just begun to wait for an absent device, milliseconds.
Ours: the device may have connected, and been served, between the look at its presence and the write of the
item. Each further look waits twice as long, up to `AWAY_MS`: a connection can be recorded minutes late."""

AWAY_MS: Final = 60 * 60 * 1_000
"""The longest wait until the reconciler looks again at an item that waits for an absent device, milliseconds.
Ours: a connection sends it at once; this is for a connection that was not reported."""

_MOST_DOUBLINGS: Final = (AWAY_MS // LOOK_MS).bit_length()

KEPT_MS: Final = 28 * 24 * 60 * 60 * 1_000
"""How long a tombstone outlives its acknowledgement, and the memory of commands the last one, milliseconds.
So long can an older event still be in flight: 14 days in each of two queues (Amazon SQS quotas)."""


@dataclass(frozen=True, slots=True)
class Transition:
    """The next item (None: it is gone, or never existed), and what has to be done besides.

    In this order, so that a crash anywhere loses nothing: dead letters of `ended` (EXPIRED ones are only
    counted), the conditional write of `item` where it differs from the one read, then `publish` (an event in
    JSON format, to the device's inbox) and a check of the item at `item.due_at_ms`. If another writer was
    faster: read again, decide again. `is_older`: the event is older than what is known.
    """

    item: Desired | None
    publish: str | None = None
    ended: tuple[Ended, ...] = ()
    is_older: bool = False


def apply_event(
    item: Desired | None, thing: str, wanted: Addressed, now_ms: int, is_present: bool
) -> Transition:
    """Apply an event for `thing`; `item` is what the table has of its key.

    Raises `DownlinkError` (`too_many_commands`, `version_jump`).
    """
    new = Desired(thing=thing, key=wanted.key, kind=wanted.kind, owner=wanted.message.sender)
    if item is not None and wanted.accepted_at_ms < item.reset:
        return Transition(item, is_older=True)
    if item is not None and not item.owner:
        item = replace(item, owner=wanted.message.sender)
    take = _take_command if wanted.kind is Downlink.COMMAND else _take_state
    step = take(item or new, wanted.message, now_ms, is_present)
    return replace(step, item=item) if step.item == new else step


def _take_state(item: Desired, message: KeyedEvent, now_ms: int, is_present: bool) -> Transition:
    after = with_newest(item, message)
    if after.message != item.message:
        return _accepted(after, now_ms, is_present)
    if after.message is None and after != item:
        return Transition(settled(after, Phase.IDLE, now_ms))
    if after.message and after.message.identity[1:] == message.identity[1:]:
        return _resumed(after, now_ms, is_present)
    return Transition(after, is_older=after == item)


def _take_command(item: Desired, message: KeyedEvent, now_ms: int, is_present: bool) -> Transition:
    if message.digest in item.recent:
        return _resumed(item, now_ms, is_present)
    if message.has_expired(now_ms):
        return Transition(item, ended=(Ended(message, Outcome.EXPIRED, "it arrived too late"),))
    proceed = _accepted if item.message is None else _resumed
    return proceed(queued(item, message, now_ms), now_ms, is_present)


def _accepted(item: Desired, now_ms: int, is_present: bool) -> Transition:
    if item.state is Phase.SENDING:
        # One transmission at a time: the newest is sent after its acknowledgement, or with its check.
        return ack_timeout(item, now_ms, is_present)
    return transmit(replace(item, attempts=0), now_ms, is_present)


def _resumed(item: Desired, now_ms: int, is_present: bool) -> Transition:
    """Try again what the device has not acknowledged, because an event arrived for its key."""
    if item.state is Phase.SENDING:
        return ack_timeout(item, now_ms, is_present)
    if item.state is Phase.IDLE or (item.state is Phase.PENDING and not is_present):
        return Transition(item)
    return transmit(replace(item, attempts=0), now_ms, is_present)


def acknowledge(item: Desired, ack: Acknowledgement, epoch: str, now_ms: int, is_present: bool) -> Transition:
    """Apply the answer of the device, in its `epoch`, to an event of this key; ignore other answers."""
    message = item.message
    if message is None or ack.fence != item.fence or ack.order != message.order or item.state is Phase.IDLE:
        return Transition(item)
    named = (ack.version, ack.sender, ack.source, ack.id)
    if named not in (message.identity, item.sent):
        return Transition(item)
    after = replace(item, epoch=epoch)
    if ack.result is AckStatus.STORED:
        after = replace(after, acknowledged_uid=ack.uid, acknowledged_version=ack.version)
    elif named == message.identity:
        return _rejected(after, message, ack, now_ms, is_present)
    after = replace(after, attempts=0)
    if named == message.identity:
        return _finished(after, now_ms, is_present)
    # Updates arrived meanwhile: the device is connected and free for the newest.
    return transmit(after, now_ms, is_present)


def _rejected(
    item: Desired, message: KeyedEvent, ack: Acknowledgement, now_ms: int, is_present: bool
) -> Transition:
    if item.state is Phase.REJECTED:
        return Transition(item)
    # A device must not use the plane's own reasons: an expired command has no dead letter.
    reason = "rejected" if ack.reason in ("", Outcome.EXPIRED, Reason.DEVICE_GONE) else ack.reason
    ended = (Ended(message, reason, ack.detail),)
    if item.kind is Downlink.STATE:
        return Transition(settled(item, Phase.REJECTED, now_ms), ended=ended)
    # Once the cause is corrected, the same command can be sent again: it does not count as a repetition.
    recent = tuple(each for each in item.recent if each != message.digest)
    return _finished(replace(item, recent=recent), now_ms, is_present, ended)


def _finished(item: Desired, now_ms: int, is_present: bool, ended: tuple[Ended, ...] = ()) -> Transition:
    """Go on after the present message was stored or rejected."""
    if item.kind is Downlink.STATE:
        return Transition(settled(item, Phase.IDLE, now_ms), ended=ended)
    return transmit(with_next_command(replace(item, message=None), now_ms), now_ms, is_present, ended)


def ack_timeout(item: Desired, now_ms: int, is_present: bool) -> Transition:
    """Check a transmission: send the newest body again if no acknowledgement came in time."""
    if item.state is not Phase.SENDING or item.due_at_ms is None or now_ms + CHECK_SLACK_MS < item.due_at_ms:
        return Transition(item)
    after, ended = without_expired(item, now_ms)
    if is_present and after.message == item.message and item.attempts >= len(BACKOFF_MS):
        return Transition(replace(after, state=Phase.PARKED, due_at_ms=now_ms + PARKED_MS), ended=ended)
    return transmit(after, now_ms, is_present, ended)


def connected(item: Desired, now_ms: int) -> Transition:
    """Send what the device, now connected and perhaps in a new session, has not confirmed."""
    if item.state in (Phase.PENDING, Phase.PARKED, Phase.SENDING):
        return transmit(replace(item, attempts=0), now_ms, is_present=True)
    return Transition(item)


def epoch_changed(item: Desired, epoch: str, now_ms: int, is_present: bool) -> Transition:
    """Send everything again to a device that began `epoch` with nothing.

    A late or second report costs a transmission.
    """
    if item.epoch == epoch or item.message is None:
        return Transition(item)
    return transmit(replace(_unconfirmed(item), epoch=epoch), now_ms, is_present)


def reset(item: Desired, number: int, now_ms: int, is_present: bool) -> Transition:
    """Begin the versions of a state's key anew, in the reset called `number`: a version from 1 on is newer.

    The desired state stays, as version 0, and is sent again, so that the device learns of the reset. The key
    belongs to nobody until its next event. A reset that is not newer than the last one changes nothing.
    """
    if number <= item.reset:
        return Transition(item)
    anew = replace(
        _unconfirmed(item),
        owner="",
        reset=number,
        message=item.message and replace(item.message, version=0),
        deletes=(),
    )
    return transmit(anew, now_ms, is_present)


def _unconfirmed(item: Desired) -> Desired:
    """Return the item as if nothing had been sent; the new fence invalidates earlier answers."""
    return replace(
        item, fence=item.fence + 1, attempts=0, sent=None, acknowledged_uid="", acknowledged_version=None
    )


def reconcile(item: Desired, now_ms: int, is_present: bool, is_known: bool) -> Transition:
    """Go on with a due item. `is_known`: the fleet has the device, and it is not decommissioned."""
    if not is_known:
        # A state is removed with its device; a command that nobody will receive becomes a dead letter.
        commands = item.messages if item.kind is Downlink.COMMAND and item.message else ()
        return Transition(
            None,
            ended=tuple(Ended(each, Reason.DEVICE_GONE, "its device left the fleet") for each in commands),
        )
    if item.due_at_ms is None or item.due_at_ms > now_ms:
        return Transition(item)
    if item.state in (Phase.IDLE, Phase.REJECTED):
        return Transition(item if item.is_present else None)
    if item.state is Phase.SENDING:
        return ack_timeout(item, now_ms, is_present)
    return transmit(replace(item, attempts=0) if is_present else item, now_ms, is_present)


def transmit(item: Desired, now_ms: int, is_present: bool, ended: tuple[Ended, ...] = ()) -> Transition:
    """Send the newest message if the device is connected; `ended` are messages that ended before."""
    item, expired = without_expired(item, now_ms)
    ended += expired
    message = item.message
    if message is None:
        return Transition(settled(item, Phase.IDLE, now_ms), ended=ended)
    if not is_present:
        looks = min(item.attempts + 1, _MOST_DOUBLINGS) if item.state is Phase.PENDING else 0
        wait_ms = min(LOOK_MS << looks, AWAY_MS)
        expiries = [each.expires_at_ms for each in item.messages if each.expires_at_ms is not None]
        due_at_ms = min([now_ms + wait_ms, *expiries])
        return Transition(
            replace(item, state=Phase.PENDING, attempts=looks, due_at_ms=due_at_ms), ended=ended
        )
    wait_ms = BACKOFF_MS[min(item.attempts, len(BACKOFF_MS) - 1)]
    item = replace(
        item,
        state=Phase.SENDING,
        attempts=item.attempts + 1,
        sent=message.identity,
        due_at_ms=now_ms + wait_ms,
    )
    return Transition(item, publish=transmission(item, message, now_ms), ended=ended)


def settled(item: Desired, state: Phase, now_ms: int) -> Desired:
    """Return `item` with nothing left to send."""
    # A live state is kept; a tombstone, and the memory of commands, is kept for its time. An item that was
    # reset is kept for ever: a device that knows of the reset takes nothing without it.
    due_at_ms = None if item.is_present or item.reset else now_ms + KEPT_MS
    return replace(item, state=state, attempts=0, sent=None, due_at_ms=due_at_ms)
