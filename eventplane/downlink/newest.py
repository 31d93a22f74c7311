"""Which state of a key is the newest, in whatever order, and however often, its events come.

The last live version of a key says which incarnation counts; it is there unless that incarnation was deleted
at its version or later. Versions grow over incarnations, so a new one replaces the old before its deletion
was heard of. A deletion with a uid ends that incarnation only; one without ends whatever is not newer.
"""

from __future__ import annotations

from dataclasses import replace

from eventplane.downlink import errors
from eventplane.downlink.desired import MAX_DELETES, Desired, Message
from eventplane.downlink.errors import DownlinkError
from eventplane.downlink.keys import COUNTERS_END, MAX_COUNTER_STEP


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
