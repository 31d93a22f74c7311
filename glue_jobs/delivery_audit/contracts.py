"""Which contract was in force: the archive keeps them by version, the ledger says from when each was used."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from eventplane.contract import Contract, SchemaCheck, load_compiled
from eventplane.ledger import CONTRACTS
from glue_jobs.delivery_audit.errors import AlteredContractError, NoContractError
from glue_jobs.delivery_audit.storage import Storage, join


@dataclass(frozen=True, slots=True)
class Use:
    """A `contract` and when a router first decided by it, Unix milliseconds (None: the ledger has no use)."""

    contract: Contract
    first_used_ms: int | None


@dataclass(frozen=True, slots=True)
class ContractHistory:
    """The contracts of a window, in the order of their first use; at least one."""

    uses: tuple[Use, ...]

    @property
    def contracts(self) -> tuple[Contract, ...]:
        return tuple(use.contract for use in self.uses)

    @property
    def uplinks(self) -> list[str]:
        """The channels over which events come from devices; those that the tap sees."""
        return sorted({contract.device.outbox.address for contract in self.contracts})

    @property
    def destinations(self) -> dict[str, str]:
        """Where each route leads; by the newest contract that has it."""
        return {route.name: route.destination for contract in self.contracts for route in contract.routes}

    def has_check(self, version: Column, event_type: Column, *checks: SchemaCheck) -> Column:
        """Whether one of `checks` is what the contract `version` has for the payloads of `event_type`."""
        checked = [
            f"{contract.version} {each.name}"
            for contract in self.contracts
            for each in contract.event_types.values()
            if each.schema_check in checks
        ]
        return sf.concat_ws(" ", version, event_type).isin(checked)

    def in_force_at(self, milliseconds: Column) -> Column:
        """The version in force at a Unix time; before the first use it is the first.

        The best guess for an event that no ledger row speaks of. What a ledger row names goes before it:
        while a new contract is rolled out, routers of both versions run side by side.
        """
        first, *later = self.uses
        return reduce(
            lambda version, use: sf.when(
                milliseconds >= sf.lit(use.first_used_ms), sf.lit(use.contract.version)
            ).otherwise(version),
            later,
            sf.lit(first.contract.version),
        )


def first_uses(ledger: DataFrame) -> dict[str, int]:
    """When each contract version was first used, Unix milliseconds, by the good rows of the ledger."""
    uses = ledger.groupBy("contract_version").agg(sf.min("decided_at_ms").alias("first")).collect()
    return {row["contract_version"]: row["first"] for row in uses}


def load_history(
    spark: SparkSession, storage: Storage, uri: str, first_used_ms: dict[str, int]
) -> ContractHistory:
    """The contracts that the ledger names; when it names none, the one that was archived last.

    Raises `NoContractError`, `AlteredContractError`, and `ContractError` for one that is damaged.
    """
    folder = join(uri, CONTRACTS)
    if not storage.exists(folder):
        raise NoContractError(folder)
    files = (
        spark.read.option("wholetext", True)
        .option("pathGlobFilter", "*.json")
        .text(folder)
        .select("value", "_metadata.file_name", "_metadata.file_modification_time")
        .orderBy("file_modification_time", "file_name")
        .collect()
    )
    texts = {row["file_name"].removesuffix(".json"): row["value"] for row in files}
    versions = (
        sorted(first_used_ms, key=lambda version: (first_used_ms[version], version)) or list(texts)[-1:]
    )
    absent = [version for version in versions if version not in texts]
    if absent or not versions:
        raise NoContractError(folder, absent)
    return ContractHistory(
        tuple(Use(_load(folder, version, texts[version]), first_used_ms.get(version)) for version in versions)
    )


def _load(folder: str, version: str, text: str) -> Contract:
    uri = join(folder, f"{version}.json")
    contract = load_compiled(text, uri)
    if contract.version != version:
        raise AlteredContractError(uri, version, contract.version)
    return contract
