"""The table of interest: what participants announced that they handle."""

from __future__ import annotations

from typing import Any

from eventplane.contract.interest import Leased, read_interest
from eventplane.errors import EventPlaneError
from lambdas.common.log import logger


class InterestTable:
    """Reads `table` through a boto3 DynamoDB client. What it refuses is raised as botocore raises it."""

    def __init__(self, client: Any, table: str) -> None:
        self._client = client
        self._table = table

    def all(self) -> frozenset[Leased]:
        """Every announcement; an item that is none is logged and left out."""
        found = set()
        pages = self._client.get_paginator("scan").paginate(TableName=self._table, ConsistentRead=True)
        for page in pages:
            for item in page["Items"]:
                try:
                    found.add(read_interest(item))
                except (LookupError, TypeError, ValueError, EventPlaneError) as error:
                    logger.warning("an item is no announcement", item=str(item)[:200], error=str(error))
        return frozenset(found)
