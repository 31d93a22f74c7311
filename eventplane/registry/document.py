"""The whole registry as one JSON document, in xRegistry's document view."""

from __future__ import annotations

from typing import Any

from eventplane.registry.model import GROUPS, Group, Registry, Resource, ResourceType, capabilities, model


def export(registry: Registry) -> dict[str, Any]:
    """Return one document with every entity within its parent; links lead to places in the document."""
    return {
        **registry.attributes,
        "self": _place("/"),
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
        **_identity(kind.singular, id, xid, epoch),
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
    own = {f"{kind.singular}id": id}
    numbers = list(resource.versions)
    return {
        **own,
        "self": _place(xid),
        "xid": xid,
        "meta": {
            **_identity(kind.singular, id, f"{xid}/meta", epoch),
            "readonly": True,
            # A contract promises nothing from one version of a payload to the next.
            "compatibility": "none",
            "defaultversionid": resource.default,
            "defaultversionurl": _place(f"{xid}/versions/{resource.default}"),
            "defaultversionsticky": False,
        },
        "versions": {
            number: {
                **own,
                **_identity("version", number, f"{xid}/versions/{number}", epoch),
                "isdefault": number == resource.default,
                # The first is its own ancestor.
                "ancestor": numbers[max(place - 1, 0)],
                **attributes,
            }
            for place, (number, attributes) in enumerate(resource.versions.items())
        },
    }


def _identity(singular: str, id: str, xid: str, epoch: int) -> dict[str, Any]:
    return {f"{singular}id": id, "self": _place(xid), "xid": xid, "epoch": epoch}


def _place(xid: str) -> str:
    # A tilde begins an escape in a JSON pointer.
    return "#" + xid.replace("~", "~0")
