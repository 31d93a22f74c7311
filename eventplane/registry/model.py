"""The types of entities that a plane's registry has, as xRegistry's model document tells them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from eventplane.registry.entities import SPECVERSION

EXTENSION: Final = "eventplane"
"""The one attribute of ours: an object with what the specification has no attribute for."""


@dataclass(frozen=True, slots=True)
class ResourceType:
    """A resource type; `has_document`: its versions are documents, with metadata beside them."""

    singular: str
    has_document: bool
    max_versions: int

    @property
    def document(self) -> str | None:
        """The attribute of a version that holds its document."""
        return self.singular if self.has_document else None


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
    """The model document."""
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
    """What of the HTTP binding is there: everything can be read, nothing can be written."""
    return {
        "apis": ["/capabilities", "/export", "/model"],
        "flags": [],
        "mutable": [],
        "pagination": True,
        "shortself": False,
        "specversions": [SPECVERSION],
        "stickyversions": False,
    }
