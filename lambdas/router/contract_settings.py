"""Where a function finds the contract in force, by its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lambdas.common.settings import bundle_root, text, whole_number


@dataclass(frozen=True, slots=True)
class ContractSettings:
    """`contracts_table` has the published contracts, `subscriptions_table` the routes that participants
    added, `interest_table` what they announced that they handle; all are looked at every `refresh_s` seconds.
    Beneath `root` lies the contract that came with the code.
    """

    contracts_table: str
    subscriptions_table: str
    interest_table: str
    refresh_s: int
    root: Path


def read_contract_settings(environment: Mapping[str, str]) -> ContractSettings:
    """The settings in `environment`. Raises `SettingsError`."""
    return ContractSettings(
        contracts_table=text(environment, "EVENTPLANE_CONTRACTS_TABLE"),
        subscriptions_table=text(environment, "EVENTPLANE_SUBSCRIPTIONS_TABLE"),
        interest_table=text(environment, "EVENTPLANE_INTEREST_TABLE"),
        refresh_s=whole_number(environment, "EVENTPLANE_CONTRACT_REFRESH_S"),
        root=bundle_root(environment),
    )
