"""The whole registry as one document, in xRegistry's document view."""

from __future__ import annotations

from typing import Any

from eventplane.registry.entities import Group, Registry, Resource
from eventplane.registry.model import GROUPS, ResourceType, capabilities, model
from eventplane.registry.serial import identity, meta_entity, version_entity


def export(registry: Registry) -> dict[str, Any]:
    """Every entity within its parent, schemas and all; links lead to places in the document."""
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
