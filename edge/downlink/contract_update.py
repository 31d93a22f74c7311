"""A contract that comes down: checked before it is stored, in force until another one, or none, follows.

It lies in the spool like every state, so it is there with its answer or not at all. As long as it is, it
stands before the contract file of the image, also after a restart; deleting the key gives the file its place
back.
"""

from __future__ import annotations

import json
import logging
import zlib
from pathlib import Path
from typing import Final

from edge.contract_file import read_contract
from edge.errors import SettingProblem, SpoolError
from edge.spool import Spool
from eventplane.contract import Contract, ContractError, Downlink, load_compiled
from eventplane.delivery import Refusal
from eventplane.device_reports import DEVICE_CONTRACT
from eventplane.downlink.rights import CONTRACT_KEYS
from eventplane.downlink.wire import Incoming
from eventplane.envelope import Envelope, parse_event

_log = logging.getLogger(__name__)

CONTRACT_TYPE: Final = DEVICE_CONTRACT
"""Its data is a compiled contract, as JSON or (`data_base64`) as gzip."""

CONTRACT_REFUSED: Final = "contract_refused"

MOST_BYTES: Final = 1024 * 1024
"""Largest contract, uncompressed. Ours: the shipped one has 20 KB; bounds what a payload can unpack to."""

_GZIP: Final = 16 + zlib.MAX_WBITS


def contract_key(name: str) -> str:
    """The key under which the contract called `name` comes."""
    return CONTRACT_KEYS + name


def is_contract_update(incoming: Incoming) -> bool:
    """Whether `incoming` is for the forwarder itself."""
    return incoming.kind is Downlink.STATE and incoming.key.startswith(CONTRACT_KEYS)


def why_refused(incoming: Incoming, name: str) -> Refusal | None:
    """Why the contract `incoming` cannot follow the one called `name`; None when it can."""
    if incoming.key != contract_key(name):
        return Refusal(
            CONTRACT_REFUSED, f"the device's contract is {name!r}; send it under {contract_key(name)}"
        )
    if incoming.is_deleted:
        return None
    try:
        contract = _read(incoming.event)
    except ContractError as error:
        return Refusal(CONTRACT_REFUSED, str(error))
    except (ValueError, zlib.error) as error:
        return Refusal(CONTRACT_REFUSED, f"its data is no compiled contract: {error}")
    if contract.name != name:
        return Refusal(CONTRACT_REFUSED, f"it is the contract {contract.name!r}, the device's is {name!r}")
    return None


def contract_in_force(file: Path, spool: Spool, name: str) -> Contract | SettingProblem:
    """The contract called `name` that came down, else the one in `file`, or why there is none."""
    try:
        holding = spool.holding(Downlink.STATE, contract_key(name))
    except SpoolError as error:
        return SettingProblem("contract", f"the delivered one cannot be read: {error.problem}", error.remedy)
    if holding is None or holding.held.is_deleted:
        return read_contract(file)
    try:
        return _read(parse_event(holding.json))
    except (ContractError, ValueError, zlib.error) as error:
        # An older program after a newer one: the file is of its own time.
        _log.error("the contract that the cloud sent cannot be used, %s is: %s", file, error)
        return read_contract(file)


def _read(event: Envelope) -> Contract:
    """Raises `ContractError`, and `ValueError` or `zlib.error` for other data."""
    data = event.data()
    if isinstance(data, bytes):
        unpacking = zlib.decompressobj(_GZIP)
        compiled = unpacking.decompress(data, MOST_BYTES)
        if not unpacking.eof:
            raise ValueError(f"not all of a gzip file, or more than {MOST_BYTES} bytes in it")
        return load_compiled(compiled, event.source)
    return load_compiled(json.dumps(data), event.source)
