"""Remembers the last events that were stored, to know a repetition."""

from __future__ import annotations

import hashlib
from collections import OrderedDict

_DIGEST_BYTES = 16


class RecentKeys:
    """The last `capacity` event keys (source and id), as digests of 16 bytes."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._digests: OrderedDict[bytes, None] = OrderedDict()

    def __contains__(self, key: tuple[str, str]) -> bool:
        return _digest(key) in self._digests

    def add(self, key: tuple[str, str]) -> None:
        """Remember `key`, and forget the oldest one beyond the capacity."""
        self._digests[_digest(key)] = None
        if len(self._digests) > self._capacity:
            self._digests.popitem(last=False)


def _digest(key: tuple[str, str]) -> bytes:
    source, id = key
    # A source is a URI-reference and has no line end, so no two keys have the same text.
    return hashlib.blake2b(f"{source}\n{id}".encode(), digest_size=_DIGEST_BYTES).digest()
