"""Which devices are there, as the presence monitor has taken it down."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from lambdas.common.log import logger


class Presence:
    """Reads the presence monitor's table through a boto3 DynamoDB client."""

    def __init__(self, client: Any, table: str) -> None:
        self._client = client
        self._table = table

    def present(self, things: Collection[str]) -> frozenset[str]:
        """Those of up to 100 `things` whose connection stands. Raises botocore's errors.

        Whoever cannot be read counts as absent: the reconciler comes back to it.
        """
        if not things:
            return frozenset()
        keys = [{"device": {"S": thing}} for thing in sorted(set(things))]
        answer = self._client.batch_get_item(RequestItems={self._table: {"Keys": keys}})
        items = answer["Responses"].get(self._table, [])
        return frozenset(item["device"]["S"] for item in items if _is_connected(item))


def _is_connected(item: dict[str, Any]) -> bool:
    try:
        return bool(json.loads(item["known"]["S"])["sighting"]["line"] == "connected")
    except (ValueError, LookupError, TypeError):
        if "sighting" in item.get("known", {}).get("S", ""):
            logger.exception("unreadable presence; correct it or delete it", device=item["device"]["S"])
        return False
