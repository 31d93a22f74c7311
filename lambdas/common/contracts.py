"""Where a function gets the contract from: its own bundle, so that code and contract change together."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from eventplane.contract import Contract, load_compiled

CONTRACT_FILE: Final = "contract.json"
"""The compiled contract's name at the root of every function's code asset."""


def load_contract(root: Path) -> Contract:
    """The contract bundled at `root`. Raises `ContractError` (it is damaged) or OSError (it is missing)."""
    path = root / CONTRACT_FILE
    return load_compiled(path.read_bytes(), str(path))
