"""The device's own attributes of an event: number, lifetime, and whether it came before.

A lifetime (`eventplane.guarantee.lifetime_ms`) counts from the acceptance, by the uptime clock. What is sent
says how much of it is left, so that the next hop counts on. Time during which the device was switched off
counts as 0: it may deliver an expired event, and never expires one early.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from edge.spool import PendingDelivery
from edge.system import UptimeClock
from eventplane.contract import Channel
from eventplane.envelope import Envelope, parse_event, reserved
from eventplane.errors import EnvelopeError
from eventplane.guarantee import (
    BY_CHANNEL,
    BY_EVENT,
    lifetime_ms,
    with_sent_time,
    with_uptime_limit,
)
from eventplane.limits import MAX_SENT_EVENT_BYTES, MAX_UPLINK_EVENT_BYTES
from eventplane.names import EPOCH, EXPIRY_TIME, ORDER, ORDER_EPOCH, SEQUENCE, SEQUENCE_DIGITS
from eventplane.reasons import Reason

_BUCKETS = 4_096
"""Of a few hundred bytes each when the memory is full."""

MOST_URGENT = 4_096
"""Urgent events' keys that are remembered however many others follow. Ours: 0.4 MiB at most."""


def stamp(event: Envelope, epoch: str, sequence: int) -> Envelope:
    """Return `event` with its epoch and number.

    Raises `EnvelopeError`: `reserved_attribute` when it already carries one of the names, or a position in an
    inbox, `too_large` when the stamped event would exceed what readers accept.
    """
    for name in (ORDER, ORDER_EPOCH):
        if name in event.attributes:
            raise reserved(name)
    return _checked(event.stamped(**{EPOCH: epoch, SEQUENCE: f"{sequence:0{SEQUENCE_DIGITS}d}"}))


def stamp_positions(event: Envelope, positions: Mapping[str, int]) -> Envelope:
    """Return a stamped `event` with `positions` in ordered inboxes. Raises `EnvelopeError`: `too_large`."""
    if not positions:
        return event
    from eventplane.ordering import positions_text

    return _checked(event.stamped(**{ORDER: positions_text(positions)}))


def _checked(stamped: Envelope) -> Envelope:
    size = len(stamped.json.encode("utf-8"))
    if size > MAX_UPLINK_EVENT_BYTES:
        raise EnvelopeError(
            Reason.TOO_LARGE,
            f"{size} bytes once numbered, at most {MAX_UPLINK_EVENT_BYTES} go up; "
            f"send at most {MAX_SENT_EVENT_BYTES}",
        )
    return stamped


def expires_ms(now_ms: int, lifetime: int | None, *channels: Channel) -> int | None:
    """Return when a delivery over `channels`, stored at `now_ms`, expires at the earliest; None: never."""
    bounds = [channel.expiry_s * 1000 for channel in channels if channel.expiry_s is not None]
    if lifetime is not None:
        bounds.append(lifetime)
    return now_ms + min(bounds) if bounds else None


def why_expired(waiting: PendingDelivery) -> str:
    """Return the reason for the record: the event's own limit or a channel's."""
    own, expired_at = _with_end(waiting), waiting.expires_ms
    return BY_EVENT if own and expired_at is not None and own[1] <= expired_at else BY_CHANNEL


def texts_for_cloud(pending: Iterable[PendingDelivery], now_ms: int) -> list[str]:
    """Return the events' texts as they go up at `now_ms`: with the rest of its lifetime, where one has it."""
    # Most have none, and a backlog has many: those are looked at, not called for.
    return [_with_rest(each, now_ms) if EXPIRY_TIME in each.json else each.json for each in pending]


def _with_rest(pending: PendingDelivery, now_ms: int) -> str:
    if (found := _with_end(pending)) is None:
        return pending.json
    event, ends_ms = found
    return with_sent_time(event, max(0, ends_ms - now_ms)).json


def text_for_service(pending: PendingDelivery, clock: UptimeClock) -> str:
    """Return the event's text as it goes to a service here: with the uptime at which it expires."""
    if (found := _with_end(pending)) is None:
        return pending.json
    event, ends_ms = found
    return with_uptime_limit(event, *clock.moment(ends_ms)).json


def expiring(json: str) -> Envelope | None:
    """Return the event in `json` if it has an `expirytime`; None for others, and for what is no event."""
    try:
        event = parse_event(json) if EXPIRY_TIME in json else None
    except EnvelopeError:  # nothing of ours, or damaged
        return None
    return event if event and EXPIRY_TIME in event.attributes else None


def _with_end(pending: PendingDelivery) -> tuple[Envelope, int] | None:
    """Return the event and when its lifetime ends, ms of the uptime clock; None if that is not known."""
    event = expiring(pending.json)
    lifetime = lifetime_ms(event) if event else None
    return None if event is None or lifetime is None else (event, pending.stored_ms + lifetime)


class LatestKeys:
    """The last `capacity` keys that were added, each by itself: few, and one can be discarded."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._keys: dict[bytes, None] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: bytes) -> bool:
        return key in self._keys

    def add(self, key: bytes) -> None:
        """Remember `key`; forget the oldest one beyond the capacity."""
        self._keys[key] = None
        if len(self._keys) > self._capacity:
            del self._keys[next(iter(self._keys))]

    def discard(self, key: bytes) -> None:
        """Forget `key`, if it is remembered."""
        self._keys.pop(key, None)


class RecentKeys:
    """The last `capacity` event keys at least, and at most twice as many; at first `stored`, oldest first.

    Keys lie behind one another in short texts of bytes: about 20 bytes a key, a fifth of a set's objects.
    Urgent events overtake a backlog that may be longer, in which they come again: their last `MOST_URGENT`
    keys are remembered apart.
    """

    def __init__(self, capacity: int, stored: Iterable[bytes] = ()) -> None:
        self._capacity = capacity
        self._young = [b""] * _BUCKETS
        self._old = self._young
        self._count = 0
        self._urgent = LatestKeys(MOST_URGENT)
        for each in stored:
            self.add(each)

    def __contains__(self, key: bytes) -> bool:
        bucket = int.from_bytes(key[:2], "little") % _BUCKETS
        # Between two keys, where one ends and the next begins, 128 bits do not match by chance.
        return key in self._young[bucket] or key in self._old[bucket] or key in self._urgent

    def add_urgent(self, key: bytes) -> None:
        """Remember `key`, the digest of an urgent event."""
        self._urgent.add(key)

    def add(self, key: bytes) -> None:
        """Remember `key`, which is a digest."""
        if self._count >= self._capacity:
            self._old, self._young, self._count = self._young, [b""] * _BUCKETS, 0
        self._young[int.from_bytes(key[:2], "little") % _BUCKETS] += key
        self._count += 1
