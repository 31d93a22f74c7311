"""A contract that the cloud sent: checked before it is stored, and again when it is followed.

It is stored in the spool like every state, so it is there with its answer or not at all. None may take away
the alarms of the file's contract (eventplane/alarm_floor.py). Only a device that was sent one loads this.
"""

from __future__ import annotations

import json
import zlib
from typing import Final

from edge.durable import can_load
from edge.errors import SettingProblem
from eventplane.contract import Contract, ContractError, Downlink, load_compiled
from eventplane.device_reports import CONTRACT_KEYS
from eventplane.downlink.wire import Incoming
from eventplane.envelope import Envelope, parse_event

MOST_BYTES: Final = 1024 * 1024
"""Largest contract, uncompressed. Ours: the shipped one has 20 KB; bounds what a payload can unpack to."""

_GZIP: Final = 16 + zlib.MAX_WBITS

_MOST_NAMED: Final = 3
"""Problems in one refusal: an acknowledgement has room for some hundred characters."""


def is_contract_update(incoming: Incoming) -> bool:
    """Return whether `incoming` is a contract for the forwarder itself."""
    return incoming.kind is Downlink.STATE and incoming.key.startswith(CONTRACT_KEYS)


def why_refused(incoming: Incoming, image: Contract) -> str | None:
    """Return why a device whose image has the contract `image` refuses `incoming`; None when it takes it."""
    name = image.name
    if incoming.key != CONTRACT_KEYS + name:
        return f"the device's contract is {name!r}; send it under {CONTRACT_KEYS}{name}"
    if incoming.is_deleted:
        return None
    if not can_load("eventplane.contract.compiler"):  # which a device needs for what is new to it
        return "it cannot be checked, for the program's file cannot be read; restart the forwarder"
    from eventplane.contract import check_compiled

    try:
        contract = _read(incoming.event)
        check_compiled(contract, incoming.event.source)
    except ContractError as error:
        return str(error)
    except (ValueError, zlib.error) as error:
        return f"its data is no compiled contract: {error}"
    if contract.name != name:
        return f"it is the contract {contract.name!r}, the device's is {name!r}"
    return lost_alarms(image, contract)


def read_sent(text: str, image: Contract) -> Contract | SettingProblem:
    """Return the contract in the event `text`, which is stored, or why it cannot be followed."""
    try:
        sent = _read(parse_event(text))
    except (ContractError, ValueError, zlib.error) as error:
        # An older program after a newer one: the file is of its own time.
        refused = str(error)
    else:
        # Of another image, or from before there was a floor.
        refused = lost_alarms(image, sent) or ""
        if not refused:
            return sent
    return SettingProblem("contract", refused, "send another contract")


def lost_alarms(image: Contract, contract: Contract) -> str | None:
    """Return which alarms of `image` the `contract` takes away, and the remedy; None for none."""
    from eventplane.alarm_floor import floor_problems  # late: most of what comes down is no contract

    if not (problems := floor_problems(image, contract)):
        return None
    named = "; ".join(f"{each.path}: {each.message}" for each in problems[:_MOST_NAMED])
    more = f" (and {len(problems) - _MOST_NAMED} more)" if len(problems) > _MOST_NAMED else ""
    return f"it takes alarms away: {named}{more}; {problems[0].remedy}"


def _read(event: Envelope) -> Contract:
    """Return the contract in `event`. Raises `ContractError`; `ValueError` or `zlib.error` for other data."""
    data = event.data()
    if isinstance(data, bytes):
        unpacking = zlib.decompressobj(_GZIP)
        compiled = unpacking.decompress(data, MOST_BYTES)
        if not unpacking.eof:
            raise ValueError(f"not all of a gzip file, or more than {MOST_BYTES} bytes in it")
        return load_compiled(compiled, event.source)
    return load_compiled(json.dumps(data), event.source)
