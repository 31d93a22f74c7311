"""The compiled contract, which is the device's configuration file; beside the spool the one last in force.

A device whose file breaks goes on by the contract that it has. So it must after a crash or a power cut: a
home without alarms is worse than one with yesterday's routes.
"""

from __future__ import annotations

import logging
from pathlib import Path

from edge import durable
from edge.errors import SettingProblem
from eventplane.contract import Contract, ContractError, load_compiled

_log = logging.getLogger(__name__)


def read_contract(file: Path) -> Contract | SettingProblem:
    """The contract in `file`, or why it cannot be used."""
    try:
        return load_compiled(file.read_bytes(), str(file))
    except ContractError as error:
        return SettingProblem("contract", str(error), "compile it again (python -m contract compile)")
    except OSError as error:
        problem = f"{file}: {error.strerror or error}"
        return SettingProblem("contract", problem, "name a compiled contract (python -m contract compile)")


def last_contract(spool: Path) -> Contract | None:
    """The one that was in force last over `spool`, None when none is known that can be used."""
    found = read_contract(_kept(spool))
    return found if isinstance(found, Contract) else None


def keep_contract(contract: Contract, spool: Path) -> None:
    """Keep the `contract` in force beside `spool`; what stands in the way is logged, and nothing else."""
    file = _kept(spool)
    try:
        if not file.exists() or file.read_bytes() != contract.canonical:
            durable.write(file, contract.canonical)
    except OSError as error:
        _log.warning(
            "%s: %s; until it is written no start gets over a broken contract file, make room for it",
            file, error.strerror or error,
        )  # fmt: skip


def _kept(spool: Path) -> Path:
    return spool.with_name(spool.name + ".contract")
