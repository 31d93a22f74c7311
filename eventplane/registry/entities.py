"""The three levels of xRegistry: groups, their resources, and the versions of those."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

SPECVERSION: Final = "1.0-rc3"
"""The xRegistry specification whose shape the documents have."""

Attributes = Mapping[str, Any]
"""Attributes of an entity, without those that follow from its place (`self`, `xid`, counts)."""

_ID: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9\-._~:@]{0,127}")


@dataclass(frozen=True, slots=True)
class Resource:
    """Something with `versions`, oldest first; the newest is the default."""

    versions: Mapping[str, Attributes]

    @property
    def default(self) -> str:
        """The id of the version that stands for the resource."""
        return list(self.versions)[-1]


@dataclass(frozen=True, slots=True)
class Group:
    """An entity with `resources`, by their plural and their id."""

    attributes: Attributes
    resources: Mapping[str, Mapping[str, Resource]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Registry:
    """All entities of a contract; `groups` by their plural and their id.

    `epoch` changes when the contract does. It is made from the contract's version, so it does not grow.
    """

    attributes: Attributes
    epoch: int
    groups: Mapping[str, Mapping[str, Group]]


def entity_id(name: str) -> str:
    """`name` where it can be an id (xRegistry core, `<SINGULAR>id`), else an id made from it."""
    if _ID.fullmatch(name):
        return name
    return f"_{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def xid(plural: str, name: str) -> str:
    """How other entities refer to the group `name` (xRegistry core, data type `xid`)."""
    return f"/{plural}/{entity_id(name)}"
