"""Which of many prefixes a text starts with, in the time of one binary search and of what it finds."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence


class PrefixTable:
    """`entries` by prefix.

    The prefixes stand sorted, each knowing the place of the longest other one that it starts with. All that a
    text starts with are on that chain from the last one that does not sort behind the text: whatever
    sorts between a prefix and a text that starts with it starts with it as well.
    """

    __slots__ = ("_entries", "_prefixes", "_shorter")

    def __init__(self, entries: Mapping[str, Sequence[int]]) -> None:
        self._prefixes = sorted(entries)
        self._entries = [entries[each] for each in self._prefixes]
        self._shorter: list[int] = []
        chain: list[int] = []
        for at, prefix in enumerate(self._prefixes):
            while chain and not prefix.startswith(self._prefixes[chain[-1]]):
                chain.pop()
            self._shorter.append(chain[-1] if chain else -1)
            chain.append(at)

    def find(self, text: str, found: list[int]) -> None:
        """Add the entries of every prefix of `text` to `found`."""
        at = bisect_right(self._prefixes, text) - 1
        while at >= 0:
            if text.startswith(self._prefixes[at]):
                found += self._entries[at]
            at = self._shorter[at]
