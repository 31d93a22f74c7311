"""Remembers the last events that were stored, to know a repetition."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable

KEY_BYTES = 16


def key_digest(key: tuple[str, str]) -> bytes:
    """The KEY_BYTES that stand for an event's source and id."""
    source, id = key
    # A source is a URI-reference and has no line end, so no two keys have the same text.
    return hashlib.blake2b(f"{source}\n{id}".encode(), digest_size=KEY_BYTES).digest()


class RecentKeys:
    """The last `capacity` event keys, as digests; at first `stored`, oldest first."""

    def __init__(self, capacity: int, stored: Iterable[bytes] = ()) -> None:
        self._capacity = capacity
        self._digests: OrderedDict[bytes, None] = OrderedDict()
        for each in stored:
            self.add(each)

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._digests

    def add(self, digest: bytes) -> None:
        """Remember `digest`, and forget the oldest one beyond the capacity."""
        self._digests[digest] = None
        if len(self._digests) > self._capacity:
            self._digests.popitem(last=False)

    def forget(self, digest: bytes) -> None:
        """The event was not stored after all: when it comes again it is no repetition."""
        self._digests.pop(digest, None)
