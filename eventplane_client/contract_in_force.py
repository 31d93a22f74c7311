"""Who handles an event, by the contract in force: the given one or what was published since, subscribed."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, Final

from eventplane.contract import Contract, ContractError, load_compiled
from eventplane.contract.publication import contract_key, head_key, read_contract, read_head
from eventplane.contract.subscription import Subscription, read_subscription, with_subscriptions
from eventplane.conversation.handlers import Handlers
from eventplane.conversation.reply import Replier
from eventplane.envelope import Envelope
from eventplane_client.aws import unavailable
from eventplane_client.errors import ClientSettingsError

CONTRACTS_TABLE: Final = "contracts"
"""What the environment's table of published contracts is called, before `resource_name`."""

REFRESH_S: Final = 5.0
"""How old what is known of the tables may be, seconds."""


class ContractInForce:
    """For `participant`, with the `deployed` contract and a boto3 DynamoDB client. Thread-safe."""

    def __init__(
        self, participant: str, deployed: Contract, dynamodb: Any, contracts: str, subscriptions: str
    ) -> None:
        self._participant = participant
        self._deployed = deployed
        self._dynamodb = dynamodb
        self._contracts = contracts
        self._subscriptions = subscriptions
        self._lock = threading.Lock()
        self._handlers: Handlers | None = None
        self._basis: tuple[str, frozenset[Subscription]] | None = None
        self._looked_at = 0.0

    def handlers(self, event: Envelope) -> frozenset[Replier]:
        """Who is expected to answer. Raises `UnavailableError`, `NotAskingError`, `NotOneDeviceError`."""
        with self._lock:
            if self._handlers is None or monotonic() - self._looked_at >= REFRESH_S:
                with unavailable(self._participant):
                    self._handlers = self._look()
                self._looked_at = monotonic()
            found = self._handlers
        return found.of(event, self._participant)

    def _look(self) -> Handlers:
        contract, subscribed = self._published(), self._subscribed()
        if self._handlers is not None and self._basis == (contract.version, subscribed):
            return self._handlers
        self._basis = (contract.version, subscribed)
        return Handlers(with_subscriptions(contract, subscribed)[0])

    def _published(self) -> Contract:
        """As the routers choose: the newest published one that can be used, else the deployed one."""
        base = self._deployed.version
        item = self._item(head_key(base))
        for version in read_head(base, item).versions if item else ():
            if version == base:
                return self._deployed
            with suppress(ContractError):
                return read_contract(version, self._item(contract_key(version)) or {})
        return self._deployed

    def _subscribed(self) -> frozenset[Subscription]:
        found = set()
        pages = self._dynamodb.get_paginator("scan").paginate(
            TableName=self._subscriptions, ConsistentRead=True
        )
        for page in pages:
            for item in page["Items"]:
                with suppress(LookupError, TypeError):
                    found.add(read_subscription(item))
        return frozenset(found)

    def _item(self, key: dict[str, Any]) -> dict[str, Any] | None:
        answer = self._dynamodb.get_item(TableName=self._contracts, Key=key, ConsistentRead=True)
        item: dict[str, Any] | None = answer.get("Item")
        return item


def deployed_contract(path: Path) -> Contract:
    """The compiled contract in a file. Raises `ClientSettingsError`."""
    try:
        return load_compiled(path.read_bytes(), str(path))
    except (OSError, ContractError) as error:
        remedy = "name what `python -m contract compile --output FILE` wrote"
        raise ClientSettingsError("contract", str(error), remedy) from error
