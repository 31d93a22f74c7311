"""Load the contract from a function's own bundle, so that code and contract change together."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from eventplane.contract import Contract, load_compiled
from eventplane.settings import SettingsError

ROOT: Final = "LAMBDA_TASK_ROOT"
"""Where the function's code asset lies unpacked (AWS Lambda guide)."""

CONTRACT_FILE: Final = "contract.json"
"""The compiled contract's name at the root of every function's code asset."""


def bundled_contract() -> Contract:
    """Return the contract in this function's bundle.

    Raises `ContractError` (it is damaged), OSError (it is missing), and `SettingsError` outside of Lambda.
    """
    root = os.environ.get(ROOT, "")
    if not root:
        raise SettingsError(ROOT, "is not set")
    path = Path(root) / CONTRACT_FILE
    return load_compiled(path.read_bytes(), str(path))
