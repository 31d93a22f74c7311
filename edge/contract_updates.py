"""The device's contract: read from its file, or sent by the cloud and checked before it is stored.

A contract from the cloud is stored in the spool like every state, so it is there with its answer or not at
all. While it is stored it takes precedence over the file of the image, also after a restart; deleting the key
makes the file active again. None may take away the alarms of the file's contract
(eventplane/alarm_floor.py).

A copy of the last active contract is kept beside the spool. With it a device goes on although its file
breaks, also after a crash or a power cut: a home without alarms is worse than one with yesterday's routes.
"""

from __future__ import annotations

import json
import logging
import zlib
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from edge import durable
from edge.errors import SettingProblem, SpoolError
from edge.parts import can_load
from edge.spool import Spool
from eventplane.contract import Contract, ContractError, Downlink, load_compiled
from eventplane.device_reports import CONTRACT_KEYS
from eventplane.envelope import Envelope, parse_event

if TYPE_CHECKING:
    from eventplane.downlink.wire import Incoming

_log = logging.getLogger(__name__)

MOST_BYTES: Final = 1024 * 1024
"""Largest contract, uncompressed. Ours: the shipped one has 20 KB; bounds what a payload can unpack to."""

_GZIP: Final = 16 + zlib.MAX_WBITS

_KEPT: Final = ".contract"
"""Of the file beside the spool with the last active contract."""

_MOST_NAMED: Final = 3
"""Problems in one refusal: an acknowledgement has room for some hundred characters."""


def contract_key(name: str) -> str:
    """Return the key under which the contract called `name` is sent."""
    return CONTRACT_KEYS + name


def is_contract_update(incoming: Incoming) -> bool:
    """Return whether `incoming` is a contract for the forwarder itself."""
    return incoming.kind is Downlink.STATE and incoming.key.startswith(CONTRACT_KEYS)


def why_refused(incoming: Incoming, image: Contract) -> str | None:
    """Return why a device whose image has the contract `image` refuses `incoming`; None when it takes it."""
    name = image.name
    if incoming.key != contract_key(name):
        return f"the device's contract is {name!r}; send it under {contract_key(name)}"
    if incoming.is_deleted:
        return None
    if not can_load("eventplane.contract.compiler"):  # which a device needs for what is new to it
        return "it cannot be checked, for the program's file cannot be read; restart the forwarder"
    try:
        contract = _read(incoming.event, is_new=True)
    except ContractError as error:
        return str(error)
    except (ValueError, zlib.error) as error:
        return f"its data is no compiled contract: {error}"
    if contract.name != name:
        return f"it is the contract {contract.name!r}, the device's is {name!r}"
    return _lost_alarms(image, contract)


class ActiveContract(NamedTuple):
    """The `contract` to follow, and that of the device's `image`, which is the source of the alarm floor.

    `refused` says why a contract that the cloud sent is not the one to follow, although it is stored.
    """

    contract: Contract
    image: Contract
    refused: SettingProblem | None = None


def active_contract(
    found: Contract | SettingProblem, spool: Spool, known: Contract
) -> ActiveContract | SettingProblem:
    """Return the contract that the cloud sent or, without one that can be followed, `found` in the file.

    While that cannot be read, `known` takes its place: the image's contract as it was read before. Without
    a disk the copy beside the spool takes the place of what the cloud sent. The result is a problem where
    neither can be followed, or the spool cannot be read.
    """
    image = known if isinstance(found, SettingProblem) else found
    try:
        delivered = _delivered(spool, image) if spool.is_on_disk else _kept_for(image, spool.path)
    except SpoolError as error:
        return SettingProblem("contract", f"the delivered one cannot be read: {error.problem}", error.remedy)
    if isinstance(delivered, Contract):
        return ActiveContract(delivered, image)
    if isinstance(found, SettingProblem):
        return found
    if delivered is not None:
        _log.error("the contract that the cloud sent is not followed, the image's is: %s", delivered.problem)
    return ActiveContract(found, found, delivered)


def read_contract(file: Path, *, is_new: bool = False) -> Contract | SettingProblem:
    """Return the contract in `file`, or why it cannot be used.

    One that `is_new` is checked as when it was compiled: a running forwarder has no memory for that.
    """
    try:
        return _load(file.read_bytes(), str(file), is_new)
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


def _delivered(spool: Spool, image: Contract) -> Contract | SettingProblem | None:
    """Return the contract that the cloud sent, why it cannot be followed, or None. Raises `SpoolError`."""
    stored = spool.device_state(Downlink.STATE, contract_key(image.name))
    if stored is None or stored.state_version.is_deleted:
        return None
    try:
        delivered = _read(parse_event(stored.json))
    except (ContractError, ValueError, zlib.error) as error:
        # An older program after a newer one: the file is of its own time.
        refused = str(error)
    else:
        # Of another image, or from before there was a floor.
        refused = _lost_alarms(image, delivered) or ""
        if not refused:
            return delivered
    return SettingProblem("contract", refused, "send another contract")


def _kept_for(image: Contract, spool: Path) -> Contract | None:
    """Return the last contract that was active over `spool`, if it has the alarms of `image`."""
    kept = last_contract(spool)
    if kept is None or kept.name != image.name or _lost_alarms(image, kept):
        return None
    return kept


def _lost_alarms(image: Contract, contract: Contract) -> str | None:
    """Return which alarms of `image` the `contract` takes away, and the remedy; None for none."""
    # Only a device that gets a contract from the cloud spends the memory.
    from eventplane.alarm_floor import floor_problems

    if not (problems := floor_problems(image, contract)):
        return None
    named = "; ".join(f"{each.path}: {each.message}" for each in problems[:_MOST_NAMED])
    more = f" (and {len(problems) - _MOST_NAMED} more)" if len(problems) > _MOST_NAMED else ""
    return f"it takes alarms away: {named}{more}; {problems[0].remedy}"


def _read(event: Envelope, *, is_new: bool = False) -> Contract:
    """Return the contract in `event`. Raises `ContractError`; `ValueError` or `zlib.error` for other data."""
    data = event.data()
    if isinstance(data, bytes):
        unpacking = zlib.decompressobj(_GZIP)
        compiled = unpacking.decompress(data, MOST_BYTES)
        if not unpacking.eof:
            raise ValueError(f"not all of a gzip file, or more than {MOST_BYTES} bytes in it")
        return _load(compiled, event.source, is_new)
    return _load(json.dumps(data), event.source, is_new)


def _load(compiled: bytes | str, origin: str, is_new: bool) -> Contract:
    """Return a contract without the payloads' schemas, which the cloud checks. Raises `ContractError`."""
    contract = load_compiled(compiled, origin)
    if is_new:
        from eventplane.contract import check_compiled

        check_compiled(contract, origin)
    types = {name: replace(each, schemas={}) for name, each in contract.event_types.items()}
    return replace(contract, event_types=MappingProxyType(types))
