"""Entities as JSON, and the whole registry as one document, in xRegistry's document view."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from eventplane.registry.model import GROUPS, Group, Registry, Resource, ResourceType, capabilities, model

Locate = Callable[[str, bool], str]
"""Returns where the entity of an xid is: its URL, or its place in a document. URLs of entities that have a
document beside their metadata differ (xRegistry)."""


def identity(
    singular: str, id: str, xid: str, epoch: int, locate: Locate, has_document: bool = False
) -> dict[str, Any]:
    """Return the attributes that every entity starts with."""
    return {f"{singular}id": id, "self": locate(xid, has_document), "xid": xid, "epoch": epoch}


@dataclass(frozen=True, slots=True)
class ResourceView:
    """The metadata of the `resource` of the type `kind` at `xid`, with links made by `locate`."""

    kind: ResourceType
    id: str
    resource: Resource
    xid: str
    epoch: int
    locate: Locate

    def entity(self) -> dict[str, Any]:
        """Return the resource: the metadata of its default version, and where the others are."""
        has_document = self.kind.has_document
        return {
            **self.version(self.resource.default),
            **identity(self.kind.singular, self.id, self.xid, self.epoch, self.locate, has_document),
            "metaurl": self.locate(f"{self.xid}/meta", False),
            "versionsurl": self.locate(f"{self.xid}/versions", False),
            "versionscount": len(self.resource.versions),
        }

    def version(self, number: str) -> dict[str, Any]:
        """Return the metadata of a version."""
        ids, attributes = list(self.resource.versions), self.resource.versions[number]
        xid = f"{self.xid}/versions/{number}"
        return {
            f"{self.kind.singular}id": self.id,
            **identity("version", number, xid, self.epoch, self.locate, self.kind.has_document),
            "isdefault": number == self.resource.default,
            # The first is its own ancestor.
            "ancestor": ids[max(ids.index(number) - 1, 0)],
            **{name: value for name, value in attributes.items() if name != self.kind.document},
        }

    def meta(self) -> dict[str, Any]:
        """Return the metadata of all versions together."""
        default = self.resource.default
        return {
            **identity(self.kind.singular, self.id, f"{self.xid}/meta", self.epoch, self.locate),
            "readonly": True,
            # A contract promises nothing from one version of a payload to the next.
            "compatibility": "none",
            "defaultversionid": default,
            "defaultversionurl": self.locate(f"{self.xid}/versions/{default}", self.kind.has_document),
            "defaultversionsticky": False,
        }


def export(registry: Registry) -> dict[str, Any]:
    """Return one document with every entity within its parent; links lead to places in the document."""
    return {
        **registry.attributes,
        "self": _place("/", False),
        "xid": "/",
        "epoch": registry.epoch,
        "capabilities": capabilities(),
        "modelsource": model(),
        **{
            plural: {id: _group(plural, id, group, registry.epoch) for id, group in groups.items()}
            for plural, groups in registry.groups.items()
        },
    }


def _group(plural: str, id: str, group: Group, epoch: int) -> dict[str, Any]:
    kind = GROUPS[plural]
    xid = f"/{plural}/{id}"
    return {
        **identity(kind.singular, id, xid, epoch, _place),
        **group.attributes,
        **{
            name: {
                each: _resource(kind.resources[name], each, resource, f"{xid}/{name}/{each}", epoch)
                for each, resource in resources.items()
            }
            for name, resources in group.resources.items()
        },
    }


def _resource(kind: ResourceType, id: str, resource: Resource, xid: str, epoch: int) -> dict[str, Any]:
    view = ResourceView(kind, id, resource, xid, epoch, _place)
    return {
        f"{kind.singular}id": id,
        "self": _place(xid, kind.has_document),
        "xid": xid,
        "meta": view.meta(),
        "versions": {
            number: {**view.version(number), **attributes} for number, attributes in resource.versions.items()
        },
    }


def _place(xid: str, has_document: bool) -> str:  # noqa: ARG001 - one place for both, within a document
    # A tilde begins an escape in a JSON pointer.
    return "#" + xid.replace("~", "~0")
