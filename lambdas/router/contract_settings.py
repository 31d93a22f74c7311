"""Where a function finds the contract in force, by its environment."""

from __future__ import annotations

from eventplane.function_settings import ContractSettings

read_contract_settings = ContractSettings.read
