"""What the device adds to its knowledge of an event: number, lifetime, and whether it came before.

A lifetime is an event's `expirytime` minus its `time`: both come from one clock, so the difference is right
however wrong that clock is. An `expirytime` without a `time` is left to the cloud, which has a clock to
trust. Time during which the device was switched off counts as 0: it may deliver an expired event, and the
cloud still checks `expirytime`; it never expires an event early.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping

from edge.spool import Waiting
from eventplane.contract import Channel
from eventplane.envelope import TOO_LARGE, Envelope, EnvelopeError, parse_event, reserved
from eventplane.expiry import BY_CHANNEL, BY_EVENT
from eventplane.limits import MAX_SENT_EVENT_BYTES, MAX_UPLINK_EVENT_BYTES
from eventplane.numbering import EPOCH, ORDER, ORDER_EPOCH, SEQUENCE, SEQUENCE_DIGITS
from eventplane.ordering import positions_text
from eventplane.timestamps import timestamp_ms


def stamp(event: Envelope, epoch: str, sequence: int) -> Envelope:
    """`event` with its epoch and number.

    Raises `EnvelopeError`: `reserved_attribute` when it already carries one of the names, or a position in an
    inbox, `too_large` when the stamped event would exceed what readers accept.
    """
    for name in (ORDER, ORDER_EPOCH):
        if name in event.attributes:
            raise reserved(name)
    return _checked(event.stamped(**{EPOCH: epoch, SEQUENCE: f"{sequence:0{SEQUENCE_DIGITS}d}"}))


def stamp_positions(event: Envelope, positions: Mapping[str, int]) -> Envelope:
    """A stamped `event` with its `positions` in ordered inboxes. Raises `EnvelopeError`: `too_large`."""
    return _checked(event.stamped(**{ORDER: positions_text(positions)})) if positions else event


def _checked(stamped: Envelope) -> Envelope:
    size = len(stamped.json.encode("utf-8"))
    if size > MAX_UPLINK_EVENT_BYTES:
        raise EnvelopeError(
            TOO_LARGE,
            f"{size} bytes once numbered, at most {MAX_UPLINK_EVENT_BYTES} go up; "
            f"send at most {MAX_SENT_EVENT_BYTES}",
        )
    return stamped


def lifetime_ms(event: Envelope) -> int | None:
    """From the event's `time` to its `expirytime`, at least 0; None when one of the two is missing."""
    time, expirytime = event.attributes.get("time"), event.attributes.get("expirytime")
    if time is None or expirytime is None:
        return None
    return max(0, timestamp_ms(str(expirytime)) - timestamp_ms(str(time)))


def expires_ms(now_ms: int, lifetime: int | None, *channels: Channel) -> int | None:
    """When a delivery over `channels`, stored at `now_ms`, expires by the strictest word; None is never."""
    bounds = [channel.expiry_s * 1000 for channel in channels if channel.expiry_s is not None]
    if lifetime is not None:
        bounds.append(lifetime)
    return now_ms + min(bounds) if bounds else None


def why_expired(waiting: Waiting) -> str:
    """Whose word it was, for the record: the event's or a channel's."""
    try:
        lifetime = lifetime_ms(parse_event(waiting.json))
    except EnvelopeError:  # nothing of ours, or damaged: then it can only have been the channel
        return BY_CHANNEL
    expired_at = waiting.expires_ms
    own = lifetime is not None and expired_at is not None and waiting.stored_ms + lifetime <= expired_at
    return BY_EVENT if own else BY_CHANNEL


class RecentKeys:
    """The last `capacity` event keys, as digests; at first `stored`, oldest first."""

    def __init__(self, capacity: int, stored: Iterable[bytes] = ()) -> None:
        self._capacity = capacity
        self._digests: OrderedDict[bytes, None] = OrderedDict()
        for each in stored:
            self.add(each)
        self.settle()

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._digests

    def add(self, digest: bytes) -> None:
        """Remember `digest`."""
        self._digests[digest] = None

    def settle(self) -> None:
        """What was added is stored, and will not be forgotten by name: the oldest beyond the capacity go."""
        while len(self._digests) > self._capacity:
            self._digests.popitem(last=False)

    def forget(self, digest: bytes) -> None:
        """The event was not stored after all: when it comes again it is no repetition."""
        self._digests.pop(digest, None)
