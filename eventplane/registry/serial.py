"""Entities as JSON: those parts of them that follow from where they stand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eventplane.registry.entities import Resource
from eventplane.registry.model import ResourceType

Locate = Callable[[str, bool], str]
"""Where the entity of an xid is: its URL, or its place in a document. Whether it has a document beside its
metadata, xRegistry wants to be told apart in URLs."""


def identity(
    singular: str, id: str, xid: str, epoch: int, locate: Locate, has_document: bool = False
) -> dict[str, Any]:
    """What every entity starts with."""
    return {f"{singular}id": id, "self": locate(xid, has_document), "xid": xid, "epoch": epoch}


def version_entity(
    kind: ResourceType, id: str, resource: Resource, version: str, xid: str, epoch: int, locate: Locate
) -> dict[str, Any]:
    """A version of the resource `id` at `xid`, without its document."""
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
    """What holds for all versions of a resource."""
    return {
        **identity(kind.singular, id, f"{xid}/meta", epoch, locate),
        "readonly": True,
        # A contract promises nothing from one version of a payload to the next.
        "compatibility": "none",
        "defaultversionid": resource.default,
        "defaultversionurl": locate(f"{xid}/versions/{resource.default}", kind.has_document),
        "defaultversionsticky": False,
    }
