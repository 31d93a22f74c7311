"""The contract in force: the one that came with the code, or what was published since."""

from __future__ import annotations

from collections.abc import Callable

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.contract import Contract
from lambdas.common.clock import Clock
from lambdas.common.contract_table import ContractTable
from lambdas.common.log import logger
from lambdas.common.metrics import Metric, count
from lambdas.router.engine import Engine


class InForce:
    """Keeps the engine of the contract in force, at most `refresh_ms` older than the table.

    `build` makes the engine of a contract, or raises where it cannot be used: then an earlier one stays.
    While the table cannot be read, the last one stays as well.
    """

    def __init__(
        self,
        *,
        bundled: Contract,
        build: Callable[[Contract], Engine],
        table: ContractTable,
        refresh_ms: int,
        clock: Clock,
    ) -> None:
        self._bundled = build(bundled)
        self._engine = self._bundled
        self._build = build
        self._table = table
        self._refresh_ms = refresh_ms
        self._clock = clock
        self._checked_ms: int | None = None
        self._refused: set[str] = set()

    def engine(self) -> Engine:
        """The engine to route the next messages by; it stays the same while they are worked on."""
        now_ms = self._clock()
        if self._checked_ms is None or now_ms - self._checked_ms >= self._refresh_ms:
            # Also after a failure: a table that is down is not asked for every message.
            self._checked_ms = now_ms
            try:
                self._refresh()
            except (ClientError, BotoCoreError, LookupError, TypeError) as error:
                logger.warning(
                    "the table of contracts could not be read",
                    contract=self._engine.contract.version,
                    error=str(error),
                )
                count(Metric.CONTRACT_UNCHECKED)
        return self._engine

    def _refresh(self) -> None:
        head = self._table.head(self._bundled.contract.version)
        for version in head.versions if head else ():
            if version == self._engine.contract.version:
                return
            if found := self._load(version):
                self._engine = found
                logger.info("a published contract is in force", contract=version)
                return
        # What is withdrawn is over; what is only broken replaces nothing.
        if head is None:
            self._engine = self._bundled

    def _load(self, version: str) -> Engine | None:
        if version == self._bundled.contract.version:
            return self._bundled
        if version not in self._refused:
            try:
                return self._build(self._table.contract(version))
            except (ClientError, BotoCoreError):
                raise
            except Exception:  # noqa: BLE001 - whatever is wrong with it, the contract in force stays
                logger.exception("a published contract cannot be used", contract=version)
                self._refused.add(version)
        count(Metric.CONTRACT_REFUSED)
        return None
