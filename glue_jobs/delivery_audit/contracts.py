"""Which contract was in force: the archive keeps them by version, the ledger says from when each was used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as sf

from eventplane.contract import Contract, SchemaCheck, load_compiled
from eventplane.ledger import CONTRACTS
from glue_jobs.delivery_audit.errors import AlteredContractError, NoContractError
from glue_jobs.delivery_audit.storage import Storage, join

STRETCH_MS: Final = 5 * 60 * 1_000
"""The stretches of time in which uses of a contract are collected, milliseconds. Ours."""

STALE_AFTER: Final = 3
"""After how many stretches beside its successor a contract's use is stale. Ours: routers look every 30 s, and a
deployment replaces all of them within minutes."""

LOOK_BACK: Final = 36
"""For how many stretches before a decision its successor's use is looked for: three hours. Ours."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Routers decided by contract `version` within `stretch` (of `STRETCH_MS`, from the epoch on), at first at
    `first_ms`, Unix milliseconds."""

    version: str
    stretch: int
    first_ms: int


@dataclass(frozen=True, slots=True)
class Use:
    """A `contract` and when a router first decided by it, Unix milliseconds (None: the ledger has no use)."""

    contract: Contract
    first_used_ms: int | None


@dataclass(frozen=True, slots=True)
class ContractHistory:
    """The contracts of a window, in the order of their first use; at least one."""

    uses: tuple[Use, ...]
    stale: frozenset[tuple[str, int]] = frozenset()
    """The versions, and the stretches of time, in which they were used beside a successor for too long."""

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
            ),
            self.stale,
        )

    def is_stale(self, version: Column, decided_at_ms: Column) -> Column:
        """Whether a decision was made by a contract whose successor had long been in force."""
        if not self.stale:
            return sf.lit(False)
        stretch = sf.floor(decided_at_ms / STRETCH_MS).cast("string")
        return sf.concat_ws(" ", version, stretch).isin([f"{name} {at}" for name, at in sorted(self.stale)])

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


def stale_uses(usages: Iterable[Usage]) -> frozenset[tuple[str, int]]:
    """Return the versions and stretches in which a version was used though a later one had long been in force.

    Long: for `STALE_AFTER` stretches at least, and it went on to be used, so that it was not withdrawn meanwhile.
    """
    stretches: defaultdict[str, set[int]] = defaultdict(set)
    first_ms: dict[str, int] = {}
    for each in usages:
        stretches[each.version].add(each.stretch)
        first_ms[each.version] = min(first_ms.get(each.version, each.first_ms), each.first_ms)

    def is_stale(version: str, at: int) -> bool:
        return any(
            not stretches[later].isdisjoint(range(at - LOOK_BACK, at - STALE_AFTER + 1))
            and not stretches[later].isdisjoint(range(at + 1, at + STALE_AFTER + 1))
            for later in stretches
            if first_ms[later] > first_ms[version]
        )

    return frozenset(
        (version, at) for version in stretches for at in stretches[version] if is_stale(version, at)
    )


def load_history(uri: str, texts: Mapping[str, str], usages: Iterable[Usage]) -> ContractHistory:
    """The contracts that were used, as far as they are archived; when none was, the one archived last.

    Raises `NoContractError`, `AlteredContractError`, and `ContractError` for one that is damaged.
    """
    usages = list(usages)
    first_used_ms: dict[str, int] = {}
    for each in usages:
        first_used_ms[each.version] = min(first_used_ms.get(each.version, each.first_ms), each.first_ms)
    used = sorted(first_used_ms, key=lambda version: (first_used_ms[version], version))
    if not texts:
        raise NoContractError(join(uri, CONTRACTS), used)
    versions = [version for version in used if version in texts] or list(texts)[-1:]
    return ContractHistory(
        tuple(Use(_load(uri, version, texts[version]), first_used_ms.get(version)) for version in versions),
        stale_uses(usages),
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
