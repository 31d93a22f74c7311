"""The desired state of devices: one item for each device and key, its newest event, its queue of commands.

Which state is the newest does not depend on the order in which events arrive, nor on how often they do. The
live version with the greatest number decides which incarnation counts; it exists unless that incarnation was
deleted at its version or later. Versions grow over incarnations, so a new incarnation replaces the old one
even before the deletion of the old one arrives. A deletion with a uid ends that incarnation only; one without
ends everything that is not newer.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NamedTuple

from eventplane.contract import Downlink
from eventplane.downlink.wire import DownlinkError, stamped
from eventplane.envelope import parse_event
from eventplane.guarantee import with_sent_time
from eventplane.reasons import Outcome, Reason

MAX_DELETES: Final = 8
"""Most deletions remembered that arrived before what they delete. Ours: an object has few incarnations."""

MAX_WAITING: Final = 100
"""Most commands of one key that wait for a device. Ours."""

MAX_WAITING_BYTES: Final = 256 * 1024
"""Most bytes of them together: an item of DynamoDB holds 400 KB."""

MAX_RECENT: Final = 100
"""Most commands of one key whose repetition is recognised, the last ones. Ours."""

COUNTERS_END: Final = 10**9
"""From here on a version counts as a time, in seconds or milliseconds; below it as a counter. Ours."""

MAX_COUNTER_STEP: Final = 1_000_000
"""How much a version below `COUNTERS_END` may grow at once. Ours."""


class Phase(StrEnum):
    """The progress of a delivery.

    IDLE: the device has it, or there is nothing to have. PENDING: it waits for the device to connect.
    SENDING: a transmission is in flight. PARKED: none was acknowledged; the reconciler tries again. REJECTED:
    the device will never take it; the next version will be tried.
    """

    IDLE = "idle"
    PENDING = "pending"
    SENDING = "sending"
    PARKED = "parked"
    REJECTED = "rejected"


class Identity(NamedTuple):
    """The identity that an acknowledgement names."""

    version: int
    sender: str
    source: str
    id: str


class Deletion(NamedTuple):
    """An incarnation was deleted at this version of its key."""

    uid: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedEvent:
    """One event for one key.

    Args:
        uid: the incarnation of the object; '' where the sender tells none apart.
        version: grows with every change of a key, also over its incarnations.
        is_deleted: a tombstone: the object is gone.
        sender: who sent it, as the transport authenticated it (`Envelope.sender`).
        text: the event as it arrived.
        order: the number of a command within its key, once it is its turn.
        expires_at_ms: from when on a command is not worth delivering, Unix milliseconds; None: never.
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
        """The identity that an acknowledgement of it names."""
        return Identity(self.version, self.sender, self.source, self.id)

    @property
    def rank(self) -> tuple[int, bool, str, str, str]:
        """The greater is the newer: by version, a tombstone after what it ends, then by id."""
        return self.version, self.is_deleted, self.id, self.source, self.sender

    @property
    def digest(self) -> str:
        """The event's name among the last commands of a key: 64 bits."""
        return hashlib.sha256(f"{self.sender}\n{self.source}\n{self.id}".encode()).hexdigest()[:16]

    def has_expired(self, now_ms: int) -> bool:
        """Return whether it is not worth delivering at `now_ms` (Unix milliseconds)."""
        return self.expires_at_ms is not None and self.expires_at_ms <= now_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """One key of one device. Times are Unix milliseconds.

    Args:
        owner: the sender that the key belongs to, the first one; '' until there was one.
        reset: number of the last reset of the key's versions (Unix milliseconds), 0 for none. An event
            accepted before it does not count any more, and a device compares it before the version.
        message: the newest state, tombstones too; of commands the one whose turn it is. None: there is none.
        state, attempts: how far its delivery has come, and its transmissions since the last success; while
            it waits for an absent device, how often the reconciler has found it still absent.
        sent: what was transmitted last, unacknowledged; older than `message` where updates arrived meanwhile.
        waiting: the commands after it, in their order.
        deletes: deletions of incarnations that are not the present one.
        recent: digests of the last commands accepted; `last_order` is the number of the last one sent.
        acknowledged_uid, acknowledged_version: what the device stored last; version None: nothing yet.
        epoch: the device's present epoch, as the device names it; '' until one was reported.
        fence: sent with every transmission; an acknowledgement with another one is of an earlier epoch.
        due_at_ms: when it has to be looked at again; None: never by itself.
        revision: how often the item was written; a write is conditional on it.
    """

    thing: str
    key: str
    kind: Downlink
    owner: str = ""
    reset: int = 0
    message: KeyedEvent | None = None
    state: Phase = Phase.IDLE
    attempts: int = 0
    sent: Identity | None = None
    waiting: tuple[KeyedEvent, ...] = ()
    deletes: tuple[Deletion, ...] = ()
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
        """True if the device should have something under this key."""
        return self.message is not None and not self.message.is_deleted

    @property
    def messages(self) -> tuple[KeyedEvent, ...]:
        """The message in turn, if there is one, and the commands after it."""
        return (self.message, *self.waiting) if self.message else self.waiting


@dataclass(frozen=True, slots=True)
class Ended:
    """A message that will not be delivered: `reason` is EXPIRED, DEVICE_GONE, or the device's own word."""

    message: KeyedEvent
    reason: str
    detail: str


def transmission(item: Desired, message: KeyedEvent, now_ms: int) -> str:
    """Return `message` as it goes to the device at `now_ms`, an event in JSON format with what is left."""
    text = message.text
    if message.expires_at_ms is not None:
        text = with_sent_time(parse_event(text), max(0, message.expires_at_ms - now_ms)).json
    return stamped(
        text,
        kind=item.kind,
        key=item.key,
        uid=message.uid,
        reset=item.reset,
        version=message.version,
        is_deleted=message.is_deleted,
        order=message.order,
        fence=item.fence,
    )


def with_newest(item: Desired, message: KeyedEvent) -> Desired:
    """Return `item` after the state `message` arrived, with its own `message` where that one is not newer.

    Raises `DownlinkError` (`version_jump`) where the version is a counter and grows too much at once: no
    later version could be newer soon.
    """
    _check_step(item, message)
    if message.is_deleted and message.uid:
        return _with_deletion(item, message)
    if not message.is_deleted:
        ended_at = max((version for uid, version in item.deletes if uid == message.uid), default=-1)
        message = replace(message, is_deleted=message.version <= ended_at)
    return _replaced(item, message)


def _check_step(item: Desired, message: KeyedEvent) -> None:
    known = max((version for _, version in item.deletes), default=0)
    known = max(known, item.message.version if item.message else 0)
    # Version 0, also the one after a reset, may be a counter or a time.
    if 0 < known < COUNTERS_END and message.version > known + MAX_COUNTER_STEP:
        raise DownlinkError(
            Reason.VERSION_JUMP,
            f"{item.key}: version {message.version} after {known}; a counter grows by at most "
            f"{MAX_COUNTER_STEP} at once; correct the sender, or begin anew: "
            f"`eventplane desired reset {item.key} --device {item.thing} | --all`",
        )


def _with_deletion(item: Desired, deletion: KeyedEvent) -> Desired:
    """Return `item` after the deletion of one incarnation."""
    current = item.message
    version = current.version if current else -1
    is_current = current is not None and current.uid == deletion.uid
    if deletion.version < version or (deletion.version == version and not is_current):
        return item
    deletes = dict(item.deletes)
    deletes[deletion.uid] = max(deletion.version, deletes.get(deletion.uid, 0))
    newest_last = sorted(map(Deletion._make, deletes.items()), key=lambda each: (each.version, each.uid))
    after = replace(
        item, deletes=tuple(each for each in newest_last if each.version > version)[-MAX_DELETES:]
    )
    if not is_current or not item.is_present:
        return after
    # At the version of what it ends; otherwise a new incarnation would have to be newer than the deletion.
    return replace(after, message=replace(deletion, version=version))


def _replaced(item: Desired, message: KeyedEvent) -> Desired:
    if item.message and not _is_newer(message, item.message):
        return item
    # An older deletion can end nothing that is still to come.
    deletes = tuple(each for each in item.deletes if each[1] > message.version)
    return replace(item, message=message, deletes=deletes)


def _is_newer(one: KeyedEvent, other: KeyedEvent) -> bool:
    # A second deletion of the same version changes nothing.
    return one.version > other.version if one.is_deleted and other.is_deleted else one.rank > other.rank


def queued(item: Desired, command: KeyedEvent, now_ms: int) -> Desired:
    """Return `item` with a new command. Raises `DownlinkError` (`too_many_commands`).

    Among those that wait a lower version goes first; one whose turn has come stays.
    """
    waiting = tuple(sorted((*item.waiting, command), key=lambda each: each.rank))
    recent = (*item.recent, command.digest)[-MAX_RECENT:]
    after = replace(item, waiting=waiting, recent=recent)
    size = sum(len(each.text.encode()) for each in after.messages)
    if len(waiting) > MAX_WAITING or size > MAX_WAITING_BYTES:
        raise DownlinkError(
            Reason.TOO_MANY_COMMANDS,
            f"{len(waiting)} commands of {size} bytes would wait for {item.key} of {item.thing}; "
            f"{MAX_WAITING} of {MAX_WAITING_BYTES} bytes may; give them an expirytime, or keys of their own",
        )
    return with_next_command(after, now_ms)


def with_next_command(item: Desired, now_ms: int) -> Desired:
    """Return `item` with the next command in turn, if none is. Its number grows even if the item was lost."""
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
    """Return `item` without the commands that have expired at `now_ms` (Unix milliseconds), and these."""
    expired = [each for each in item.messages if each.has_expired(now_ms)]
    if not expired:
        return item, ()
    message = None if item.message in expired else item.message
    kept = tuple(each for each in item.waiting if each not in expired)
    after = with_next_command(replace(item, message=message, waiting=kept), now_ms)
    return after, tuple(Ended(each, Outcome.EXPIRED, _expiry_detail(each, item)) for each in expired)


def _expiry_detail(message: KeyedEvent, item: Desired) -> str:
    if message is item.message and item.sent is not None:
        return "it was sent and not acknowledged in time"
    return "it expired before its turn"
