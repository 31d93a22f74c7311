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

INTERVAL_MS: Final = 5 * 60 * 1_000
"""The intervals in which uses of a contract are collected, milliseconds. Ours."""

STALE_AFTER: Final = 3
"""After how many intervals beside its successor a contract's use is stale. Ours: routers look every 30 s, and
a deployment replaces all of them within minutes."""

LOOK_BACK: Final = 36
"""For how many intervals before a decision its successor's use is looked for: three hours. Ours."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Routers decided by contract `version` in an interval, first at `first_ms`, Unix milliseconds.

    `interval` is its number, counted in `INTERVAL_MS` from the Unix epoch on. `is_in_force` is false where
    the contract had come with a router's code, which had not yet seen the one in force.
    """

    version: str
    interval: int
    first_ms: int
    is_in_force: bool = True


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
    """Versions with the intervals in which they were used though a successor had long been in force."""

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
        interval = sf.floor(decided_at_ms / INTERVAL_MS).cast("string")
        return sf.concat_ws(" ", version, interval).isin([f"{name} {at}" for name, at in sorted(self.stale)])

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
    """Return versions with the intervals in which they were used though a later one had long been in force.

    Long: at least `STALE_AFTER` intervals. The later one must be used before, meanwhile and afterwards, so
    that it was not withdrawn in between: after a rollback the earlier contract is the right one.
    """
    intervals: defaultdict[str, set[int]] = defaultdict(set)
    for each in usages:
        if each.is_in_force:
            intervals[each.version].add(each.interval)
    first_ms = _first_uses(usages)

    def is_stale(version: str, at: int) -> bool:
        before = range(at - LOOK_BACK, at - STALE_AFTER + 1)
        meanwhile = range(at - STALE_AFTER + 1, at + 1)
        afterwards = range(at + 1, at + STALE_AFTER + 1)
        return any(
            not any(intervals[later].isdisjoint(each) for each in (before, meanwhile, afterwards))
            for later in intervals
            if first_ms[later] > first_ms[version]
        )

    return frozenset(
        (version, at) for version in intervals for at in intervals[version] if is_stale(version, at)
    )


def _first_uses(usages: Iterable[Usage]) -> dict[str, int]:
    """When each version was first used while it was in force, Unix milliseconds."""
    first_ms: dict[str, int] = {}
    for each in usages:
        if each.is_in_force:
            first_ms[each.version] = min(first_ms.get(each.version, each.first_ms), each.first_ms)
    return first_ms


def load_history(uri: str, texts: Mapping[str, str], usages: Iterable[Usage]) -> ContractHistory:
    """The contracts that were used, as far as they are archived; when none was, the one archived last.

    Raises `NoContractError`, `AlteredContractError`, and `ContractError` for one that is damaged.
    """
    usages = list(usages)
    first_used_ms = _first_uses(usages)
    used = sorted(first_used_ms, key=lambda version: (first_used_ms[version], version))
    # Without a first use, so that it is never the one in force.
    used += sorted({each.version for each in usages} - first_used_ms.keys())
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
