"""Contracts that are published between two deployments, and the table that has them.

A deployment has a contract of its own, its base. A publication replaces that one and no other: the next
deployment with another contract starts from its own. docs/adr/0007-contract-table.md says why.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final

from eventplane.contract.compiler import load_compiled
from eventplane.contract.model import Channel, Contract, ParticipantKind, Place, Route
from eventplane.contract.reader import ContractError, Problem
from eventplane.names import DOWNLINK

KEY: Final = "id"
"""The table's partition key, a text."""

Item = dict[str, Any]
"""An item as DynamoDB's own API has it."""


@dataclass(frozen=True, slots=True)
class Head:
    """Which version is in force instead of the contract `base`, and the one before it, if any."""

    base: str
    version: str
    previous: str | None
    published_at: str

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions that may be in force, the best first."""
        return (self.version,) if self.previous is None else (self.version, self.previous)


def head_key(base: str) -> Item:
    return {KEY: {"S": f"in-force/{base}"}}


def head_item(head: Head) -> Item:
    item = {
        **head_key(head.base),
        "version": {"S": head.version},
        "published_at": {"S": head.published_at},
    }
    return item if head.previous is None else {**item, "previous": {"S": head.previous}}


def read_head(base: str, item: Item) -> Head:
    """Return the head in `item`. Raises KeyError for another item."""
    previous = item.get("previous")
    return Head(base, item["version"]["S"], previous["S"] if previous else None, item["published_at"]["S"])


def contract_key(version: str) -> Item:
    return {KEY: {"S": f"contract/{version}"}}


def contract_item(contract: Contract) -> Item:
    return {**contract_key(contract.version), "compiled": {"B": zlib.compress(contract.canonical, 9)}}


def read_contract(version: str, item: Item) -> Contract:
    """Return the contract in `item`. Raises `ContractError` if it is damaged or of another version."""
    origin = f"published contract {version}"
    try:
        compiled = zlib.decompress(item["compiled"]["B"])
    except (KeyError, TypeError, zlib.error) as error:
        raise ContractError(
            origin, [Problem("(item)", f"it cannot be read: {error!r}", "publish it again")]
        ) from error
    contract = load_compiled(compiled, origin)
    if contract.version != version:
        problem = Problem("(item)", f"it is really {contract.version}", "publish it again")
        raise ContractError(origin, [problem])
    return contract


def cloud_inboxes(contract: Contract) -> Iterator[Channel]:
    """Return the inboxes that have a queue: the cloud services', and the device's with a downlink."""
    yield from (service.inbox for service in contract.of_kind(ParticipantKind.CLOUD_SERVICE))
    if DOWNLINK in contract.participants:
        yield contract.device.inbox


def cloud_destinations(contract: Contract) -> Iterator[Channel]:
    """Return the channels that the cloud's routers write to: `cloud_inboxes`, and those for replies."""
    yield from cloud_inboxes(contract)
    for service in contract.of_kind(ParticipantKind.CLOUD_SERVICE):
        if service.replies is not None:
            yield service.replies


def unserved(contract: Contract, queues: Collection[str]) -> list[Route]:
    """Return the cloud's routes to channels without a queue; `queues` are the addresses that have one."""
    reachable = {each.address for each in cloud_destinations(contract)}.intersection(queues)
    return [route for route in contract.routes_at(Place.CLOUD) if route.destination not in reachable]


class ContractTable:
    """`table` through a boto3 DynamoDB client, whose errors are raised as they are."""

    def __init__(self, client: Any, table: str) -> None:
        self._client = client
        self._table = table

    def head(self, base: str) -> Head | None:
        """Return what is published for the deployment of the contract `base`; None if nothing is."""
        item = self._get(head_key(base))
        return read_head(base, item) if item else None

    def contract(self, version: str) -> Contract:
        """Return the published contract. Raises `ContractError` if it is missing, damaged or too new."""
        return read_contract(version, self._get(contract_key(version)) or {})

    def _get(self, key: dict[str, Any]) -> dict[str, Any] | None:
        # Consistent, so that routers see a publication within their interval.
        answer = self._client.get_item(TableName=self._table, Key=key, ConsistentRead=True)
        item: dict[str, Any] | None = answer.get("Item")
        return item
