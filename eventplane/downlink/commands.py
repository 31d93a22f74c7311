"""The commands of one key: each once, in their order, as long as they are worth it."""

from __future__ import annotations

from dataclasses import replace

from eventplane.downlink import errors
from eventplane.downlink.desired import (
    EXPIRED,
    MAX_RECENT,
    MAX_WAITING,
    MAX_WAITING_BYTES,
    Desired,
    Ended,
    Message,
)
from eventplane.downlink.errors import DownlinkError


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
