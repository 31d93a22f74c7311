"""The whole registry as one document, in xRegistry's document view."""

from __future__ import annotations

from collections.abc import Callable
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


def version_entity(
    kind: ResourceType, id: str, resource: Resource, version: str, xid: str, epoch: int, locate: Locate
) -> dict[str, Any]:
    """Return a version of the resource `id` at `xid`, without its document."""
    ids = list(resource.versions)
    attributes = resource.versions[version]
    return {
        f"{kind.singular}id": id,
        **identity("version", version, f"{xid}/versions/{version}", epoch, locate, kind.has_document),
        "isdefault": version == resource.default,
        # The first is its own ancestor.
        "ancestor": ids[max(ids.index(version) - 1, 0)],
        **{name: value for name, value in attributes.items() if name != kind.document},
    }


def meta_entity(
    kind: ResourceType, id: str, resource: Resource, xid: str, epoch: int, locate: Locate
) -> dict[str, Any]:
    """Return the metadata of all versions of a resource together."""
    return {
        **identity(kind.singular, id, f"{xid}/meta", epoch, locate),
        "readonly": True,
        # A contract promises nothing from one version of a payload to the next.
        "compatibility": "none",
        "defaultversionid": resource.default,
        "defaultversionurl": locate(f"{xid}/versions/{resource.default}", kind.has_document),
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
    def version(number: str) -> dict[str, Any]:
        entity = version_entity(kind, id, resource, number, xid, epoch, _place)
        return {**entity, **resource.versions[number]}

    return {
        f"{kind.singular}id": id,
        "self": _place(xid, kind.has_document),
        "xid": xid,
        "meta": meta_entity(kind, id, resource, xid, epoch, _place),
        "versions": {number: version(number) for number in resource.versions},
    }


def _place(xid: str, has_document: bool) -> str:  # noqa: ARG001 - one place for both, within a document
    # A tilde begins an escape in a JSON pointer.
    return "#" + xid.replace("~", "~0")
