"""The table of published contracts: the one way to read it.

The client is the caller's, as with `eventplane.subscription_table`. What it refuses is raised as it is.
"""

from __future__ import annotations

from typing import Any

from eventplane.contract import Contract
from eventplane.contract.publication import Head, contract_key, head_key, read_contract, read_head


class ContractTable:
    """`table` through a boto3 DynamoDB client."""

    def __init__(self, client: Any, table: str) -> None:
        self._client = client
        self._table = table

    def head(self, base: str) -> Head | None:
        """What is published for the deployment of the contract `base`."""
        item = self._get(head_key(base))
        return read_head(base, item) if item else None

    def contract(self, version: str) -> Contract:
        """The published contract. Raises `ContractError` for one that is missing, damaged or too new."""
        return read_contract(version, self._get(contract_key(version)) or {})

    def _get(self, key: dict[str, Any]) -> dict[str, Any] | None:
        # Consistent, so that "refreshed within the interval" is true.
        answer = self._client.get_item(TableName=self._table, Key=key, ConsistentRead=True)
        item: dict[str, Any] | None = answer.get("Item")
        return item
