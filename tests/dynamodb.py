"""DynamoDB in tests."""

from __future__ import annotations

from typing import Any


def create_table(dynamodb: Any, name: str, *keys: str) -> None:
    """A table whose partition key, and sort key if there is one, are strings: `keys`."""
    dynamodb.create_table(
        TableName=name,
        KeySchema=[
            {"AttributeName": key, "KeyType": kind}
            for key, kind in zip(keys, ("HASH", "RANGE"), strict=False)
        ],
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in keys],
        BillingMode="PAY_PER_REQUEST",
    )
