"""The registry's entities: their types and ids, and each within its parent in xRegistry's document view."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

SPECVERSION: Final = "1.0-rc3"
"""The xRegistry specification whose shape the documents have."""

EntityAttributes = Mapping[str, Any]
"""Attributes of an entity, without those that follow from its place (`self`, `xid`)."""

_ID: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9\-._~:@]{0,127}")


def entity_id(name: str) -> str:
    """Return `name` if it can be an id (xRegistry core, `<SINGULAR>id`), else an id made from it."""
    if _ID.fullmatch(name):
        return name
    return f"_{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def xid(plural: str, name: str) -> str:
    """Return the reference to the group `name` (xRegistry core, data type `xid`)."""
    return f"/{plural}/{entity_id(name)}"


EXTENSION: Final = "eventplane"
"""Our own attribute: an object with the members that the specification does not have."""


@dataclass(frozen=True, slots=True)
class ResourceType:
    """A resource type; `has_document`: its versions are documents, with metadata beside them."""

    singular: str
    has_document: bool
    max_versions: int


@dataclass(frozen=True, slots=True)
class GroupType:
    """A group type with its resource types, by their plural; `domain` is the specification it is from."""

    singular: str
    domain: str | None
    resources: dict[str, ResourceType]


MESSAGES: Final = ResourceType("message", has_document=False, max_versions=1)
SCHEMAS: Final = ResourceType("schema", has_document=True, max_versions=0)

GROUPS: Final = {
    "endpoints": GroupType("endpoint", "endpoint", {}),
    "messagegroups": GroupType("messagegroup", "message", {"messages": MESSAGES}),
    "participants": GroupType("participant", None, {}),
    "routes": GroupType("route", None, {}),
    "schemagroups": GroupType("schemagroup", "schema", {"schemas": SCHEMAS}),
}
"""Group types by their plural. Participants and routes are ours: no specification has them."""

_ANY: Final = {"*": {"name": "*", "type": "any"}}


def model() -> dict[str, Any]:
    """Return the model document."""
    return {"attributes": _ANY, "groups": {plural: _group(plural, each) for plural, each in GROUPS.items()}}


def _group(plural: str, group: GroupType) -> dict[str, Any]:
    document: dict[str, Any] = {"plural": plural, "singular": group.singular, "attributes": _ANY}
    if group.domain:
        document["modelversion"] = SPECVERSION
        document["modelcompatiblewith"] = f"https://xregistry.io/xreg/domains/{group.domain}/specs/model.json"
    if group.resources:
        document["resources"] = {
            name: {
                "plural": name,
                "singular": each.singular,
                "maxversions": each.max_versions,
                "hasdocument": each.has_document,
                "attributes": _ANY,
            }
            for name, each in group.resources.items()
        }
    return document


def capabilities() -> dict[str, Any]:
    """Return the supported part of the HTTP binding: the document can be read, nothing can be written."""
    return {
        "apis": ["/export"],
        "flags": [],
        "mutable": [],
        "pagination": False,
        "shortself": False,
        "specversions": [SPECVERSION],
        "stickyversions": False,
    }


Versions = Mapping[str, EntityAttributes]
"""The versions of a resource by number, oldest first; the newest is the default."""


@dataclass(frozen=True, slots=True)
class Entities:
    """Write entities with what follows from their place; links lead to places in the document.

    `epoch` changes when the contract does. It is made from the contract's version, so it does not grow.
    """

    epoch: int

    def groups(self, plural: str, groups: Mapping[str, EntityAttributes]) -> dict[str, Any]:
        """Return groups without resources, by their id."""
        return {id: self.group(plural, id, attributes) for id, attributes in groups.items()}

    def group(
        self, plural: str, id: str, attributes: EntityAttributes, **resources: Mapping[str, Versions]
    ) -> dict[str, Any]:
        """Return a group with its `resources`, by their plural and their id."""
        kind, xid = GROUPS[plural], f"/{plural}/{id}"
        return {
            **self._identity(kind.singular, id, xid),
            **attributes,
            **{
                name: {
                    each: self._resource(kind.resources[name], each, versions, f"{xid}/{name}/{each}")
                    for each, versions in those.items()
                }
                for name, those in resources.items()
            },
        }

    def _resource(self, kind: ResourceType, id: str, versions: Versions, xid: str) -> dict[str, Any]:
        own, numbers = {f"{kind.singular}id": id}, list(versions)
        return {
            **own,
            "self": place(xid),
            "xid": xid,
            "meta": {
                **self._identity(kind.singular, id, f"{xid}/meta"),
                "readonly": True,
                # A contract promises nothing from one version of a payload to the next.
                "compatibility": "none",
                "defaultversionid": numbers[-1],
                "defaultversionurl": place(f"{xid}/versions/{numbers[-1]}"),
                "defaultversionsticky": False,
            },
            "versions": {
                number: {
                    **own,
                    **self._identity("version", number, f"{xid}/versions/{number}"),
                    "isdefault": number == numbers[-1],
                    # The first is its own ancestor.
                    "ancestor": numbers[max(at - 1, 0)],
                    **attributes,
                }
                for at, (number, attributes) in enumerate(versions.items())
            },
        }

    def _identity(self, singular: str, id: str, xid: str) -> dict[str, Any]:
        return {f"{singular}id": id, "self": place(xid), "xid": xid, "epoch": self.epoch}


def place(xid: str) -> str:
    """Return the JSON pointer to the entity."""
    # A tilde begins an escape in a JSON pointer.
    return "#" + xid.replace("~", "~0")
