"""The compiled contract, which is the device's configuration file."""

from __future__ import annotations

from pathlib import Path

from edge.errors import SettingProblem
from eventplane.contract import Contract, ContractError, load_compiled


def read_contract(file: Path) -> Contract | SettingProblem:
    """The contract in `file`, or why it cannot be used."""
    try:
        return load_compiled(file.read_bytes(), str(file))
    except ContractError as error:
        return SettingProblem("contract", str(error), "compile it again (python -m contract compile)")
    except OSError as error:
        problem = f"{file}: {error.strerror or error}"
        return SettingProblem("contract", problem, "name a compiled contract (python -m contract compile)")
