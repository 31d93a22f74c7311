"""The device's contract: read from its file, or sent by the cloud (`edge.sent_contract`).

While a contract from the cloud is stored it takes precedence over the file of the image, also after a
restart; deleting the key makes the file active again.

A copy of the last active contract is kept beside the spool. With it a device goes on although its file
breaks, also after a crash or a power cut: a home without alarms is worse than one with yesterday's routes.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from edge import durable
from edge.durable import can_load
from edge.errors import SettingProblem, SpoolError
from edge.spool.store import Spool
from eventplane.contract import Contract, ContractError, Downlink, load_compiled
from eventplane.device_reports import CONTRACT_KEYS

_log = logging.getLogger(__name__)

_KEPT: Final = ".contract"
"""Of the file beside the spool with the last active contract."""

_UNREADABLE: Final = SettingProblem(
    "contract", "the one from the cloud cannot be read", "see that the disk of the program works"
)


def contract_key(name: str) -> str:
    """Return the key under which the contract called `name` is sent."""
    return CONTRACT_KEYS + name


class Adopted(NamedTuple):
    """The `contract` to follow, and that of the device's `image`, which is the source of the alarm floor.

    `refused` says why a contract that the cloud sent is not the one to follow, although it is stored.
    """

    contract: Contract
    image: Contract
    refused: SettingProblem | None = None


def active_contract(
    found: Contract | SettingProblem, spool: Spool, known: Contract
) -> Adopted | SettingProblem:
    """Return the contract that the cloud sent or, without one that can be followed, `found` in the file.

    While that cannot be read, `known` takes its place: the image's contract as it was read before. Without
    a disk the copy beside the spool takes the place of what the cloud sent. The result is a problem where
    neither can be followed, or the spool cannot be read.
    """
    image = known if isinstance(found, SettingProblem) else found
    try:
        sent = _sent(spool, image) if spool.is_on_disk else _kept_for(image, spool.path)
    except SpoolError as error:
        return SettingProblem("contract", f"the delivered one cannot be read: {error.problem}", error.remedy)
    if isinstance(sent, Contract):
        return Adopted(sent, image)
    if isinstance(found, SettingProblem):
        return found
    if sent is not None:
        _log.error("the contract that the cloud sent is not followed, the image's is: %s", sent.problem)
    return Adopted(found, found, sent)


def read_contract(file: Path, *, is_new: bool = False) -> Contract | SettingProblem:
    """Return the contract in `file`, or why it cannot be used.

    One that `is_new` is checked as when it was compiled: a running forwarder has no memory for that.
    """
    try:
        contract = load_compiled(file.read_bytes(), str(file))
        if is_new:
            from eventplane.contract import check_compiled

            check_compiled(contract, str(file))
        return _without_schemas(contract)
    except ContractError as error:
        return SettingProblem("contract", str(error), "compile it again (eventplane contract compile)")
    except OSError as error:
        problem = f"{file}: {error.strerror or error}"
        return SettingProblem("contract", problem, "name a compiled contract (eventplane contract compile)")


def last_contract(spool: Path) -> Contract | None:
    """Return the last contract that was active over `spool`, None when no usable one is kept."""
    found = read_contract(durable.beside(spool, _KEPT))
    return found if isinstance(found, Contract) else None


def keep_contract(contract: Contract, spool: Path) -> None:
    """Write the active `contract` beside `spool`; log what prevents it, and raise nothing."""
    file = durable.beside(spool, _KEPT)
    try:
        if not file.exists() or file.read_bytes() != contract.canonical:
            durable.write(file, contract.canonical)
    except OSError as error:
        _log.warning(
            "%s: %s; until it is written no start gets over a broken contract file, make room for it",
            file, error.strerror or error,
        )  # fmt: skip


def _sent(spool: Spool, image: Contract) -> Contract | SettingProblem | None:
    """Return the contract that the cloud sent, why it cannot be followed, or None. Raises `SpoolError`."""
    stored = spool.device_state(Downlink.STATE, contract_key(image.name))
    if stored is None or stored.state_version.is_deleted:
        return None
    if not can_load("edge.sent_contract"):
        return _UNREADABLE
    from edge.sent_contract import read_sent

    found = read_sent(stored.json, image)
    return _without_schemas(found) if isinstance(found, Contract) else found


def _kept_for(image: Contract, spool: Path) -> Contract | None:
    """Return the last contract that was active over `spool`, if it has the alarms of `image`."""
    kept = last_contract(spool)
    if kept is None or kept.name != image.name or not can_load("edge.sent_contract"):
        return None
    from edge.sent_contract import lost_alarms

    return None if lost_alarms(image, kept) else kept


def _without_schemas(contract: Contract) -> Contract:
    """Return it without the payloads' schemas, which the cloud checks."""
    types = {name: replace(each, schemas={}) for name, each in contract.event_types.items()}
    return replace(contract, event_types=MappingProxyType(types))
