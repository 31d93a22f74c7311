"""The tables that the contract in force is read from, as an operator and participants write them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from eventplane.contract import Contract, compile_contract
from eventplane.contract.publication import ContractTable, Head, contract_item, head_item, head_key
from eventplane.contract.subscription import new_subscription
from eventplane.contract.subscription_table import subscription_item
from lambdas.common.tables import InterestTable, SubscriptionTable
from lambdas.router.active_contract import ActiveContract, Unseen
from lambdas.router.engine import Engine, build_engine
from tests.unit.lambdas.support import INTEREST, SUBSCRIPTIONS, TABLE, Cloud

INTERVAL_MS = 10_000
SOURCE = "device.outbox"


def changed(contract: Contract, name: str, to: str = "family-app.inbox", type: str | None = None) -> Contract:
    """The contract with one more route, called `name`, as is the type that it takes unless one is given."""
    document = json.loads(contract.canonical)
    document["routes"][name] = {"filter": {"exact": {"type": type or name}}, "to": to}
    return compile_contract(document, name)


@dataclass
class Table:
    """Publishes without the checks that the command makes."""

    cloud: Cloud
    base: Contract
    previous: str | None = None
    now_ms: int = 0

    def put(self, contract: Contract) -> None:
        self.cloud.dynamodb.put_item(TableName=TABLE, Item=contract_item(contract))
        self.name(contract.version)

    def name(self, version: str) -> None:
        head = Head(self.base.version, version, self.previous, "2026-01-01T00:00:00Z")
        self.cloud.dynamodb.put_item(TableName=TABLE, Item=head_item(head))
        self.previous = version

    def withdraw(self) -> None:
        self.cloud.dynamodb.delete_item(TableName=TABLE, Key=head_key(self.base.version))

    def in_force(
        self, client: Any = None, subscriptions: Any = None, interest: Any = None, source: str = SOURCE
    ) -> ActiveContract[Engine]:
        """A router's that has just started; each table through a client of its own, if there is one."""
        return ActiveContract(
            bundled=self.base,
            build=lambda contract: build_engine(contract, source, self.cloud.queues),
            table=ContractTable(client or self.cloud.dynamodb, TABLE),
            subscriptions=SubscriptionTable(subscriptions or self.cloud.dynamodb, SUBSCRIPTIONS),
            interest=InterestTable(interest or self.cloud.dynamodb, INTEREST),
            refresh_ms=INTERVAL_MS,
            clock=lambda: self.now_ms,
            queues=self.cloud.queues,
        )

    def later(self, in_force: ActiveContract[Engine]) -> str:
        """The version in force after the next look at the table."""
        self.now_ms += INTERVAL_MS
        return seen(in_force).contract.version


def seen(in_force: ActiveContract[Engine]) -> Engine:
    """The engine of a contract in force that is known."""
    engine = in_force.engine()
    assert not isinstance(engine, Unseen)
    return engine


def unseen(in_force: ActiveContract[Engine]) -> Engine:
    """The engine that is at hand while the contract in force is not known."""
    engine = in_force.engine()
    assert isinstance(engine, Unseen)
    return engine.engine


def subscribe(table: Table, name: str, type: str, participant: str = "family-app") -> None:
    subscription = new_subscription(participant, name, {"exact": {"type": type}}, "2026-01-01T00:00:00Z")
    table.cloud.dynamodb.put_item(TableName=SUBSCRIPTIONS, Item=subscription_item(subscription))


class Throttled:
    """DynamoDB that refuses what concerns the `tables`, and counts what it is asked for."""

    def __init__(self, client: Any, *tables: str) -> None:
        self.tables = set(tables)
        self.asked: list[str] = []
        self._client = client

    def get_item(self, **request: Any) -> Any:
        self._meet(request["TableName"])
        return self._client.get_item(**request)

    def get_paginator(self, operation: str) -> Any:
        return _Pages(self, self._client.get_paginator(operation))

    def _meet(self, table: str) -> None:
        self.asked.append(table)
        if table in self.tables:
            raise ClientError({"Error": {"Code": "ThrottlingException", "Message": "no"}}, "Read")


@dataclass
class _Pages:
    throttled: Throttled
    paginator: Any

    def paginate(self, **request: Any) -> Any:
        self.throttled._meet(request["TableName"])
        return self.paginator.paginate(**request)
