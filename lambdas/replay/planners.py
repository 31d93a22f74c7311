"""The router's planner for whatever contract a delivery is owed by: the archive keeps all of them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from botocore.exceptions import ClientError

from eventplane.contract import load_compiled
from eventplane.errors import EventPlaneError
from eventplane.ledger import CONTRACTS
from lambdas.router.planner import Planner

MAX_KEPT: Final = 10
"""Most planners that are kept. Ours: subscriptions and interest make many contracts a day, and a file of the
tap is owed by few of them."""


class UnknownContractError(EventPlaneError):
    """The archive has no contract of this `version`."""

    def __init__(self, version: str) -> None:
        super().__init__(f"the archive has no contract {version}; put it there as {CONTRACTS}/{version}.json")
        self.version = version


class Planners:
    """Planners for what comes over the channel `source`, by the contracts in the archive `bucket`."""

    def __init__(self, client: Any, bucket: str, source: str) -> None:
        self._client = client
        self._bucket = bucket
        self._source = source
        self._kept = lru_cache(MAX_KEPT)(self._made)

    def of(self, version: str) -> Planner:
        """Raises `UnknownContractError`, `ContractError`, and what botocore raises."""
        return self._kept(version)

    def _made(self, version: str) -> Planner:
        name = f"{CONTRACTS}/{version}.json"
        try:
            compiled = self._client.get_object(Bucket=self._bucket, Key=name)["Body"].read()
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") == "NoSuchKey":
                raise UnknownContractError(version) from error
            raise
        contract = load_compiled(compiled, name)
        if contract.version != version:
            raise UnknownContractError(version)
        return Planner(contract, self._source)
