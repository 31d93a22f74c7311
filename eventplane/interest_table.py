"""The table of interest: the one way to read what participants announced that they handle.

The client is the caller's, as with `eventplane.subscription_table`. What it refuses is raised as it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from eventplane.contract.interest import (
    MAX_ITEM_BYTES,
    MAX_PROGRAMS,
    PARTITION,
    Item,
    Leased,
    announced_ms,
    read_filters,
    until_s,
)


class InterestTable:
    """`table` through a boto3 DynamoDB client. An item that is no announcement goes to `on_foreign` only."""

    def __init__(
        self,
        client: Any,
        table: str,
        on_foreign: Callable[[Item, Exception], None] = lambda _item, _why: None,
    ) -> None:
        self._client = client
        self._table = table
        self._on_foreign = on_foreign

    def all(self, now_s: float = 0) -> frozenset[Leased]:
        """Every announcement that counts at `now_s`, Unix seconds; by default also what has expired.

        What several programs of a participant announce alike is one, until the last of them expires. Who has
        more than `MAX_PROGRAMS` different ones has announced nothing.
        """
        found: defaultdict[str, dict[str, Leased]] = defaultdict(dict)
        unknown: set[str] = set()
        pages = self._client.get_paginator("scan").paginate(TableName=self._table, ConsistentRead=True)
        for page in pages:
            for item in page["Items"]:
                participant = item[PARTITION]["S"]
                if participant in unknown:
                    continue
                try:
                    _take(item, found[participant], now_s)
                except Exception as error:  # noqa: BLE001 - whatever is wrong with one item, the others are read
                    self._on_foreign(item, error)
                    # What one of its programs handles is not known: then nothing is of the participant.
                    unknown.add(participant)
                    del found[participant]
        return frozenset(each for own in found.values() for each in own.values())


def _take(item: Item, own: dict[str, Leased], now_s: float) -> None:
    """Put what `item` announces into `own`, by its text. Raises whatever is wrong with it."""
    until = until_s(item)
    if until <= now_s:
        return
    text = item["filters"]["S"]
    if known := own.get(text):
        own[text] = replace(
            known,
            until_s=max(until, known.until_s),
            announced_ms=max(announced_ms(item), known.announced_ms),
        )
        return
    if len(own) == MAX_PROGRAMS:
        raise ValueError(f"the participant announces more than {MAX_PROGRAMS} different things")
    read = _remembered if len(text) <= MAX_ITEM_BYTES else read_filters
    own[text] = Leased(read(item[PARTITION]["S"], text), until, announced_ms(item))


# Most of it is the same at the next look. What is refused is not remembered: it is one of a participant.
_remembered = lru_cache(maxsize=256)(read_filters)
