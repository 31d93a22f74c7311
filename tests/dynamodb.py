"""Tables of DynamoDB for tests, in the fake, in moto or in the emulated cloud."""

from collections.abc import Iterable, Mapping
from os import urandom
from typing import Any

from eventplane.downlink import table as downlink_table
from eventplane.records import R, RecordKind, Records
from eventplane_aws.tables import DynamoDbTables


def create_table(
    dynamodb: Any,
    name: str,
    *keys: str,
    numbers: Iterable[str] = (),
    global_indexes: Mapping[str, tuple[str, str]] | None = None,
    local_indexes: Mapping[str, tuple[str, str]] | None = None,
) -> None:
    """Create a table by its partition key and, if there is one, sort key: `keys`.

    Its attributes are strings, but for `numbers`; indexes have their keys only, by their own two.
    """
    numbers, global_indexes, local_indexes = set(numbers), global_indexes or {}, local_indexes or {}
    used = {*keys, *(each for index in (*global_indexes.values(), *local_indexes.values()) for each in index)}
    indexes = {
        "GlobalSecondaryIndexes": [_index(*each) for each in global_indexes.items()],
        "LocalSecondaryIndexes": [_index(*each) for each in local_indexes.items()],
    }
    dynamodb.create_table(
        TableName=name,
        KeySchema=_schema(keys),
        AttributeDefinitions=[
            {"AttributeName": each, "AttributeType": "N" if each in numbers else "S"} for each in sorted(used)
        ],
        BillingMode="PAY_PER_REQUEST",
        **{kind: each for kind, each in indexes.items() if each},
    )


def create_desired_table(dynamodb: Any, name: str) -> None:
    """Create the table of desired states, the one with indexes of both kinds."""
    partition, sort = downlink_table.PARTITION_KEY, downlink_table.SORT_KEY
    index, index_sort = downlink_table.INDEX_KEY, downlink_table.INDEX_SORT_KEY
    create_table(
        dynamodb,
        name,
        partition,
        sort,
        numbers=(index, index_sort),
        global_indexes={downlink_table.INDEX: (index, index_sort)},
        local_indexes={downlink_table.PENDING_INDEX: (partition, index_sort)},
    )


def records(client: Any, name: str, kind: RecordKind[R]) -> Records[R]:
    """Create the table `name` without an index, and return its records."""
    create_table(client, name, *kind.key)
    return Records(DynamoDbTables(client, urandom), name, kind)


def _index(name: str, keys: tuple[str, str]) -> dict[str, Any]:
    return {"IndexName": name, "KeySchema": _schema(keys), "Projection": {"ProjectionType": "KEYS_ONLY"}}


def _schema(keys: tuple[str, ...]) -> list[dict[str, str]]:
    return [
        {"AttributeName": key, "KeyType": kind} for key, kind in zip(keys, ("HASH", "RANGE"), strict=False)
    ]
