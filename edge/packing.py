"""What one publish holds of the events that wait."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, takewhile

from eventplane.batch import pack_texts
from eventplane.limits import MAX_BATCH_BYTES

PROBE = b"[]"
"""A batch of no events: readers take it like any other, and the broker has to acknowledge it."""

_MOST_CHARACTERS = (MAX_BATCH_BYTES - 1) // 4
"""Text of one batch: what decompresses within the readers' bound whatever it is, at 4 bytes a character."""

_HEADROOM = 0.9
"""When a batch is too large, how much of the proportional share to try next: texts compress unevenly."""


def pack_first(texts: Sequence[str], limit: int) -> tuple[bytes, int]:
    """A compressed batch of as many of the first events as fit `limit` bytes, and how many they are.

    At least one of a non-empty `texts`: a single event always fits, because every limit that the settings
    allow has room for `MAX_EVENT_BYTES`.
    """
    sizes = accumulate(len(text) + 1 for text in texts)
    count = max(1, sum(1 for _ in takewhile(lambda size: size <= _MOST_CHARACTERS, sizes)))
    payload = pack_texts(texts[:count])
    while len(payload) > limit and count > 1:
        count = max(1, min(count - 1, int(count * limit / len(payload) * _HEADROOM)))
        payload = pack_texts(texts[:count])
    return payload, count


def pack_one(texts: Sequence[str], _limit: int) -> tuple[bytes, int]:
    """The first event alone, as it is: what any reader of CloudEvents understands."""
    return texts[0].encode("utf-8"), 1
