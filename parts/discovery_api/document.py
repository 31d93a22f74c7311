"""Entities of the registry's document, in xRegistry's document view: each within its parent, at its path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from parts.discovery_api.model import GROUPS, EntityAttributes, ResourceType

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
