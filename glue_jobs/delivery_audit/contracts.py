"""Which contract was in force: the archive keeps them by version, the ledger says from when each was used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column
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

    def with_uses(self, first_used_ms: Mapping[str, int]) -> ContractHistory:
        """The same with first uses where none was known."""
        return ContractHistory(
            tuple(
                Use(each.contract, each.first_used_ms or first_used_ms.get(each.contract.version))
                for each in self.uses
            )
        )

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


def archived(storage: Storage, uri: str) -> dict[str, str]:
    """The texts of the archived contracts by version, in the order in which they were archived."""
    files = storage.read_folder(join(uri, CONTRACTS))
    return {name.removesuffix(".json"): text for name, text in files if name.endswith(".json")}


def load_history(uri: str, texts: Mapping[str, str], first_used_ms: Mapping[str, int]) -> ContractHistory:
    """The contracts that were used, as far as they are archived; when none was, the one archived last.

    Raises `NoContractError`, `AlteredContractError`, and `ContractError` for one that is damaged.
    """
    used = sorted(first_used_ms, key=lambda version: (first_used_ms[version], version))
    if not texts:
        raise NoContractError(join(uri, CONTRACTS), used)
    versions = [version for version in used if version in texts] or list(texts)[-1:]
    return ContractHistory(
        tuple(Use(_load(uri, version, texts[version]), first_used_ms.get(version)) for version in versions)
    )


def check_used(uri: str, texts: Mapping[str, str], used: Iterable[str]) -> None:
    """Raises `NoContractError` when a contract that good rows name is not archived."""
    if absent := sorted(set(used) - set(texts)):
        raise NoContractError(join(uri, CONTRACTS), absent)


def _load(archive: str, version: str, text: str) -> Contract:
    uri = join(archive, CONTRACTS, f"{version}.json")
    contract = load_compiled(text, uri)
    if contract.version != version:
        raise AlteredContractError(uri, version, contract.version)
    return contract
