"""The fleet's registry in DynamoDB."""

from __future__ import annotations

from typing import Any

from eventplane.fleet import Device
from eventplane.fleet_registry import from_item, read_request, write_request


class Registry:
    """`table` through a boto3 DynamoDB client. What DynamoDB refuses is raised as botocore raises it."""

    def __init__(self, client: Any, table: str) -> None:
        self._client = client
        self._table = table

    def read(self, thing: str) -> Device | None:
        """See `eventplane.fleet_registry.Store`."""
        item = self._client.get_item(**read_request(self._table, thing)).get("Item")
        return from_item(item) if item else None

    def write(self, device: Device) -> bool:
        """See `eventplane.fleet_registry.Store`."""
        try:
            self._client.put_item(**write_request(self._table, device))
        except self._client.exceptions.ConditionalCheckFailedException:
            return False
        return True
