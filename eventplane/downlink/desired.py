"""What a device shall have: one item for each device and key, and how far its delivery has come."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from eventplane.contract import Downlink
from eventplane.downlink import errors
from eventplane.downlink.addressing import Addressed
from eventplane.downlink.errors import DownlinkError
from eventplane.downlink.wire import COUNTERS_END, MAX_COUNTER_STEP, stamped

BACKOFF_MS: Final = (5_000, 10_000, 20_000, 40_000, 80_000)
"""How long each transmission waits for its acknowledgement, milliseconds. Five transmissions, the first
wait of 5 s are KubeEdge's; doubling is ours: who is slow is not helped by being asked more often."""

CHECK_SLACK_MS: Final = 500
"""How much before its time a check counts, milliseconds: the clocks of functions differ by less."""

PARKED_MS: Final = 15 * 60 * 1_000
"""After how long the reconciler tries anew what was not acknowledged, milliseconds. Ours."""

LOOK_MS: Final = 60 * 1_000
"""How soon the reconciler looks at what has just begun to wait for an absent device, milliseconds. Ours: it
may have connected, and been served, between the look at its presence and the write of the item."""

AWAY_MS: Final = 60 * 60 * 1_000
"""After how long the reconciler looks again at what waits for an absent device, milliseconds. Ours: a
connection sends it at once; this is for a connection that nobody was told of."""

KEPT_MS: Final = 28 * 24 * 60 * 60 * 1_000
"""How long a tombstone outlives its acknowledgement, and the memory of commands the last one, milliseconds.
So long can an older event still be on its way: 14 days in each of two queues (Amazon SQS quotas)."""

MAX_DELETES: Final = 8
"""Most deletions remembered that came before what they delete. Ours: an object has few incarnations."""

MAX_WAITING: Final = 100
"""Most commands of one key that wait for a device. Ours."""

MAX_WAITING_BYTES: Final = 256 * 1024
"""Most bytes of them together: an item of DynamoDB holds 400 KB."""

MAX_RECENT: Final = 100
"""Most commands of one key whose repetition is recognised, the last ones. Ours."""


class State(StrEnum):
    """How far a delivery has come.

    IDLE: the device has it, or there is nothing to have. PENDING: it waits for the device to be there.
    SENDING: a transmission is under way. PARKED: none was acknowledged; the reconciler goes on. REJECTED: the
    device will never take it; the next version will be tried.
    """

    IDLE = "idle"
    PENDING = "pending"
    SENDING = "sending"
    PARKED = "parked"
    REJECTED = "rejected"


Identity = tuple[int, str, str, str]
"""Version, sender, `source` and `id`: what an acknowledgement names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One event for one key. `order` is the number of a command within its key, once it is its turn.

    `expires_at_ms`: Unix milliseconds from which on a command is not worth delivering; None: never.
    """

    uid: str
    version: int
    is_deleted: bool
    sender: str
    source: str
    id: str
    text: str
    order: int = 0
    expires_at_ms: int | None = None

    @property
    def identity(self) -> Identity:
        """What an acknowledgement of it names."""
        return self.version, self.sender, self.source, self.id

    @property
    def rank(self) -> tuple[int, bool, str, str, str]:
        """What is greater is newer: by version, a tombstone after what it ends, then by id."""
        return self.version, self.is_deleted, self.id, self.source, self.sender

    @property
    def digest(self) -> str:
        """Names the event in the memory of a key's commands: 64 bits."""
        return hashlib.sha256(f"{self.sender}\n{self.source}\n{self.id}".encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """One key of one device. Times are Unix milliseconds.

    Args:
        owner: the sender that the key belongs to, the first one; '' until there was one.
        reset: number of the last reset of the key's versions (Unix milliseconds), 0 for none. What was
            accepted before it does not count any more, and a device compares it before the version.
        message: the newest state, tombstones too; of commands the one whose turn it is. None: there is none.
        state, attempts: how far its delivery has come, and its transmissions since the last good news.
        sent: what was transmitted last, unacknowledged; older than `message` where updates came meanwhile.
        waiting: the commands after it, in their order.
        deletes: deletions of incarnations (uid, version) that are not the present one.
        recent: digests of the last commands accepted; `last_order` is the number of the last one sent.
        acknowledged_uid, acknowledged_version: what the device stored last; version None: nothing yet.
        epoch: the life of the device that counts, as it names it; '' until it was heard.
        fence: goes with every transmission; an acknowledgement with another one is of an earlier life.
        due_at_ms: when it has to be looked at again; None: never by itself.
        revision: how often the item was written: what a writer has to have read.
    """

    thing: str
    key: str
    kind: Downlink
    owner: str = ""
    reset: int = 0
    message: Message | None = None
    state: State = State.IDLE
    attempts: int = 0
    sent: Identity | None = None
    waiting: tuple[Message, ...] = ()
    deletes: tuple[tuple[str, int], ...] = ()
    recent: tuple[str, ...] = ()
    last_order: int = 0
    acknowledged_uid: str = ""
    acknowledged_version: int | None = None
    epoch: str = ""
    fence: int = 0
    due_at_ms: int | None = None
    revision: int = 0

    @property
    def is_present(self) -> bool:
        """Whether the device shall have something under this key."""
        return self.message is not None and not self.message.is_deleted


@dataclass(frozen=True, slots=True)
class Ended:
    """A message that is not delivered any more: `reason` EXPIRED, DEVICE_GONE, or the device's own word."""

    message: Message
    reason: str
    detail: str


EXPIRED: Final = "expired"
"""Why a command ended that was not acknowledged in its time."""

DEVICE_GONE: Final = "device_gone"
"""Why a command ended whose device was decommissioned."""


@dataclass(frozen=True, slots=True)
class Step:
    """What becomes of an item (None: it is gone, or never was), and what has to be done besides.

    In this order, so that a crash anywhere loses nothing: dead letters of `ended` (what is EXPIRED is only
    counted), the conditional write of `item` where it differs from the one read, then `publish` (an event in
    JSON format, to the device's inbox) and a check of the item at `item.due_at_ms`. A write that another was
    faster than is no step: read again, decide again. `is_older`: what was desired is, than what is known.
    """

    item: Desired | None
    publish: str | None = None
    ended: tuple[Ended, ...] = ()
    is_older: bool = False


def message_of(wanted: Addressed) -> Message:
    """The message that a sender's event is."""
    return Message(
        uid=wanted.uid,
        version=wanted.version,
        is_deleted=wanted.is_deleted,
        sender=wanted.sender,
        source=wanted.source,
        id=wanted.id,
        text=wanted.text,
        expires_at_ms=wanted.expires_at_ms,
    )


def transmission(item: Desired, message: Message) -> str:
    """`message` as it goes to the device, an event in JSON format."""
    return stamped(
        message.text,
        kind=item.kind,
        key=item.key,
        uid=message.uid,
        reset=item.reset,
        version=message.version,
        is_deleted=message.is_deleted,
        order=message.order,
        fence=item.fence,
    )


def with_newest(item: Desired, message: Message) -> Desired:
    """`item` after `message` was heard of. The same `item.message` where that is not newer.

    Raises `DownlinkError` (`version_jump`) where the version is a counter and grows too much at once: nothing
    newer could be expressed soon.
    """
    _check_step(item, message)
    if not message.is_deleted:
        return _live(item, message)
    if message.uid:
        return _guarded(item, message)
    return _replaced(item, message)


def _check_step(item: Desired, message: Message) -> None:
    known = max((version for _, version in item.deletes), default=0)
    known = max(known, item.message.version if item.message else 0)
    # Of version 0, also the one after a reset, nobody knows yet whether it counts or tells the time.
    if 0 < known < COUNTERS_END and message.version > known + MAX_COUNTER_STEP:
        raise DownlinkError(
            errors.VERSION_JUMP,
            f"{item.key}: version {message.version} after {known}; a counter grows by at most "
            f"{MAX_COUNTER_STEP} at once; correct the sender, or begin anew: "
            f"`python -m eventplane desired reset {item.key} --device {item.thing} | --all`",
        )


def _live(item: Desired, message: Message) -> Desired:
    ended_at = max((version for uid, version in item.deletes if uid == message.uid), default=-1)
    message = replace(message, is_deleted=message.version <= ended_at)
    return _replaced(item, message)


def _guarded(item: Desired, deletion: Message) -> Desired:
    current = item.message
    version = current.version if current else -1
    if deletion.version < version or (
        deletion.version == version and current and current.uid != deletion.uid
    ):
        return item
    after = replace(item, deletes=_remembered(item, deletion, version))
    if current is None or current.is_deleted or current.uid != deletion.uid:
        return after
    # At the version of what it ends, or else a new incarnation would have to be newer than the deletion.
    return replace(after, message=replace(deletion, version=version))


def _remembered(item: Desired, deletion: Message, version: int) -> tuple[tuple[str, int], ...]:
    deletes = dict(item.deletes)
    deletes[deletion.uid] = max(deletion.version, deletes.get(deletion.uid, 0))
    newest_last = sorted(deletes.items(), key=lambda each: (each[1], each[0]))
    return tuple(each for each in newest_last if each[1] > version)[-MAX_DELETES:]


def _replaced(item: Desired, message: Message) -> Desired:
    if item.message and not _is_newer(message, item.message):
        return item
    # An older deletion can end nothing that is still to come.
    deletes = tuple(each for each in item.deletes if each[1] > message.version)
    return replace(item, message=message, deletes=deletes)


def _is_newer(one: Message, other: Message) -> bool:
    # What is gone cannot go once more.
    return one.version > other.version if one.is_deleted and other.is_deleted else one.rank > other.rank


def is_known(item: Desired, message: Message) -> bool:
    """Whether the command was accepted before."""
    return message.digest in item.recent


def queued(item: Desired, message: Message, now_ms: int) -> Desired:
    """`item` with a new command. Raises `DownlinkError` (`too_many_commands`).

    Among those that wait a lower version goes first; one whose turn has come stays.
    """
    waiting = tuple(sorted((*item.waiting, message), key=lambda each: each.rank))
    size = sum(len(each.text.encode()) for each in (item.message, *waiting) if each)
    if len(waiting) > MAX_WAITING or size > MAX_WAITING_BYTES:
        raise DownlinkError(
            errors.TOO_MANY_COMMANDS,
            f"{len(waiting)} commands of {size} bytes would wait for {item.key} of {item.thing}; "
            f"{MAX_WAITING} of {MAX_WAITING_BYTES} bytes may; give them an expirytime, or keys of their own",
        )
    recent = (*item.recent, message.digest)[-MAX_RECENT:]
    return next_turn(replace(item, waiting=waiting, recent=recent), now_ms)


def next_turn(item: Desired, now_ms: int) -> Desired:
    """`item` with the next command in turn, if none is. Its number grows even where the item began anew."""
    if item.message or not item.waiting:
        return item
    order = max(item.last_order + 1, now_ms)
    first, *rest = item.waiting
    return replace(
        item,
        message=replace(first, order=order),
        waiting=tuple(rest),
        last_order=order,
        attempts=0,
        sent=None,
    )


def without_expired(item: Desired, now_ms: int) -> tuple[Desired, tuple[Ended, ...]]:
    """`item` without the commands whose time is over at `now_ms` (Unix milliseconds), and these."""
    over = [each for each in (item.message, *item.waiting) if each and _is_over(each, now_ms)]
    if not over:
        return item, ()
    message = None if item.message in over else item.message
    kept = replace(item, message=message, waiting=tuple(each for each in item.waiting if each not in over))
    return next_turn(kept, now_ms), tuple(Ended(each, EXPIRED, _detail(each, item)) for each in over)


def _is_over(message: Message, now_ms: int) -> bool:
    return message.expires_at_ms is not None and message.expires_at_ms <= now_ms


def _detail(message: Message, item: Desired) -> str:
    was_sent = message is item.message and item.sent is not None
    return (
        "it was sent and not acknowledged in time" if was_sent else "its time was over before its turn came"
    )
