"""Remembers the last events that were stored, to know a repetition."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable


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
