"""The table of interest: the one way to read what participants announced that they handle.

The client is the caller's, as with `eventplane.subscription_table`. What it refuses is raised as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eventplane.contract.interest import PARTITION, Item, Leased, read_interest
from eventplane.errors import EventPlaneError


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

    def all(self) -> frozenset[Leased]:
        """Every announcement."""
        found, unknown = set(), set()
        pages = self._client.get_paginator("scan").paginate(TableName=self._table, ConsistentRead=True)
        for page in pages:
            for item in page["Items"]:
                try:
                    found.add(read_interest(item))
                except (LookupError, TypeError, ValueError, EventPlaneError) as error:
                    self._on_foreign(item, error)
                    unknown.add(item[PARTITION]["S"])
        # What one of its programs handles is not known: then nothing is of the participant.
        return frozenset(each for each in found if each.announcement.participant not in unknown)
