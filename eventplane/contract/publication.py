"""Contracts that are published between two deployments, and the table that has them.

A deployment has a contract of its own, its base. A publication replaces that one and no other: the next
deployment with another contract starts from its own. docs/adr/0007-contract-table.md says why.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

from eventplane.contract import Channel, Contract, ParticipantKind, Place, Route
from eventplane.contract.canonical import (
    VERSION_LENGTH,
    ContractError,
    Problem,
    canonical_bytes,
    load_compiled,
)
from eventplane.contract.participants import leads_down
from eventplane.names import DOWNLINK
from eventplane.records import NEW, Item, RecordError, RecordKind, Records, Tables
from eventplane.values import is_timestamp

CONTRACTS_TABLE: Final = "contracts"
"""What the table is called, before `resource_name`."""

KEY: Final = "id"
"""The table's partition key, a text."""


@dataclass(frozen=True, slots=True)
class Head:
    """The version in force instead of the contract `base`, and the one before it, if any.

    A `candidate` is in force beside it, for the events that devices accepted under it (ADR 63). Programs of
    0.3.0 do not know it: what they publish ends it.
    """

    base: str
    version: str
    previous: str | None
    published_at: str
    candidate: str | None = None
    revision: int = field(default=NEW, compare=False)

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions that may be in force, the best first."""
        return (self.version,) if self.previous is None else (self.version, self.previous)


HEADS: Final = "heads/"
"""The beginning of the names of archived heads, in the archive's folder of contracts."""

_MEMBERS: Final = ("base", "version", "previous", "candidate", "published_at")
_OPTIONAL: Final = ("previous", "candidate")


def head_text(head: Head) -> bytes:
    """Return `head` as the archive keeps it: JSON."""
    return canonical_bytes({name: getattr(head, name) for name in _MEMBERS})


def head_name(head: Head) -> str:
    """Return the name of an archived head, without its folder: that of its content."""
    return HEADS + hashlib.sha256(head_text(head)).hexdigest()[:VERSION_LENGTH]


def read_head(text: bytes) -> Head:
    """Return an archived head. Raises ValueError for what is none."""
    members = json.loads(text)
    if not isinstance(members, dict) or members.keys() != {*_MEMBERS}:
        raise ValueError("it has other members than a head")
    texts = [each for name, each in members.items() if each is not None or name not in _OPTIONAL]
    if not all(isinstance(each, str) for each in texts) or not is_timestamp(members["published_at"]):
        raise ValueError("its members are no texts, or its time is none")
    return Head(**members)


@dataclass(frozen=True, slots=True)
class PublishedContract:
    """A contract as the table has it: `compiled` to canonical JSON, compressed."""

    version: str
    compiled: bytes
    revision: int = NEW


def published(contract: Contract) -> PublishedContract:
    """Return `contract` as the table has it."""
    return PublishedContract(contract.version, zlib.compress(contract.canonical, 9))


def head_id(base: str) -> str:
    """Return the key of the head for the deployment of the contract `base`."""
    return f"in-force/{base}"


def contract_id(version: str) -> str:
    """Return the key of a published contract."""
    return f"contract/{version}"


def _named_by_key(member: str) -> Callable[[Item], Item]:
    """Return what adds to an item of 0.3.0 the `member` that only its key names."""
    return lambda item: {member: {"S": item[KEY]["S"].partition("/")[2]}, **item}


HEAD: Final = RecordKind(
    type=Head, key=(KEY,), derived={KEY: lambda head: head_id(head.base)}, upgrade=_named_by_key("base")
)
CONTRACT: Final = RecordKind(
    type=PublishedContract,
    key=(KEY,),
    derived={KEY: lambda contract: contract_id(contract.version)},
    upgrade=_named_by_key("version"),
)
"""How the table keeps its items."""


def cloud_inboxes(contract: Contract) -> Iterator[Channel]:
    """Return the inboxes that have a queue: the cloud services', and the device's with a downlink."""
    yield from (service.inbox for service in contract.of_kind(ParticipantKind.CLOUD_SERVICE))
    if DOWNLINK in contract.participants:
        yield contract.device.inbox


def cloud_destinations(contract: Contract) -> Iterator[Channel]:
    """Return the channels that the cloud's routers write to: `cloud_inboxes`, and those for replies."""
    yield from cloud_inboxes(contract)
    for service in contract.of_kind(ParticipantKind.CLOUD_SERVICE):
        if service.replies is not None:
            yield service.replies


def written_channels(contract: Contract) -> Iterator[Channel]:
    """Return the `cloud_destinations` that routers write to: those of participants in use."""
    for channel in cloud_destinations(contract):
        owner = contract.participants[channel.participant]
        is_used = leads_down(contract.participants) if channel == contract.device.inbox else not owner.retired
        if is_used:
            yield channel


def unserved(contract: Contract, queues: Collection[str]) -> list[Route]:
    """Return the cloud's routes to channels without a queue; `queues` are the addresses that have one."""
    reachable = {each.address for each in cloud_destinations(contract)}.intersection(queues)
    return [route for route in contract.routes_at(Place.CLOUD) if route.destination not in reachable]


class ContractTable:
    """`name` in `tables`, whose errors are raised as they are."""

    def __init__(self, tables: Tables, name: str) -> None:
        self.heads = Records(tables, name, HEAD)
        self.contracts = Records(tables, name, CONTRACT)

    def head(self, base: str) -> Head | None:
        """Return what is published for the deployment of the contract `base`; None if nothing is."""
        return self.heads.read(head_id(base))

    def contract(self, version: str) -> Contract:
        """Return the published contract. Raises `ContractError` if it is missing, damaged or too new."""
        origin = f"published contract {version}"
        try:
            found = self.contracts.read(contract_id(version))
            compiled = zlib.decompress(found.compiled if found else b"")
        except (RecordError, zlib.error) as error:
            problem = Problem("(item)", f"it cannot be read: {error!r}", "publish it again")
            raise ContractError(origin, [problem]) from error
        contract = load_compiled(compiled, origin)
        if contract.version != version:
            problem = Problem("(item)", f"it is really {contract.version}", "publish it again")
            raise ContractError(origin, [problem])
        return contract
