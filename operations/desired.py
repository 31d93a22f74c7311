"""What a device shall have and has, as the downlink's table knows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from eventplane.contract import Downlink
from eventplane.downlink.desired import Desired
from eventplane.downlink.table import (
    PARTITION_KEY,
    SORT_KEY,
    from_item,
    key_of,
    page_request,
    sort_key,
)
from eventplane.downlink.wire import ALL

_PAGE: Final = 100


class DesiredItems:
    """Through a boto3 DynamoDB client. What AWS refuses is raised as botocore raises it."""

    def __init__(self, client: Any, table: str) -> None:
        self._client = client
        self._table = table

    def of(self, thing: str) -> Iterator[Desired]:
        """All items of a device, by key."""
        return (from_item(each) for each in self._items(thing))

    def under(self, key: str) -> Iterator[Desired]:
        """Yield the items of all devices under a key, of both kinds. Reads the whole table."""
        kinds = {f":{kind.name}": {"S": sort_key(kind, key)} for kind in Downlink}
        pages = self._client.get_paginator("scan").paginate(
            TableName=self._table,
            FilterExpression=f"#k <> :all AND #s IN ({', '.join(kinds)})",
            ExpressionAttributeNames={"#k": PARTITION_KEY, "#s": SORT_KEY},
            ExpressionAttributeValues={":all": {"S": ALL}, **kinds},
        )
        return (from_item(each) for page in pages for each in page["Items"])

    def keys(self, thing: str) -> list[str]:
        """The sort keys of all items of a device."""
        return [each[SORT_KEY]["S"] for each in self._items(thing)]

    def remove(self, thing: str, sk: str) -> None:
        """Remove an item, whatever it holds; nothing when there is none."""
        self._client.delete_item(TableName=self._table, Key=key_of(thing, sk))

    def _items(self, thing: str) -> Iterator[Any]:
        after: str | None = None
        while True:
            answer = self._client.query(**page_request(self._table, thing, _PAGE, after))
            yield from answer["Items"]
            if "LastEvaluatedKey" not in answer:
                return
            after = answer["LastEvaluatedKey"][SORT_KEY]["S"]
