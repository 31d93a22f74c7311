"""One resource and its versions, in xRegistry's API view: the metadata, or the document that it is about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from eventplane.registry.answer import Answer
from eventplane.registry.entities import Resource
from eventplane.registry.model import ResourceType
from eventplane.registry.serial import Locate, identity, meta_entity, version_entity

DETAILS: Final = "$details"
"""At the end of a path: the metadata, where the path without it leads to a document."""

_AS_HEADERS: Final = ("versionid", "self", "xid", "epoch", "isdefault", "ancestor")
"""The attributes that go with a document; the others are at `$details`, where no header has to be escaped."""


@dataclass(frozen=True, slots=True)
class ResourceView:
    """The `resource` of the type `kind` at `xid`."""

    kind: ResourceType
    id: str
    resource: Resource
    xid: str
    epoch: int
    url: Locate

    def entity(self) -> dict[str, Any]:
        """The resource: what its default version says, and where the rest is."""
        return {
            **self.version(self.resource.default),
            **identity(self.kind.singular, self.id, self.xid, self.epoch, self.url, self.kind.has_document),
            "metaurl": self.url(f"{self.xid}/meta", False),
            "versionsurl": self.url(f"{self.xid}/versions", False),
            "versionscount": len(self.resource.versions),
        }

    def version(self, number: str) -> dict[str, Any]:
        """A version's metadata."""
        return version_entity(self.kind, self.id, self.resource, number, self.xid, self.epoch, self.url)

    def meta(self) -> dict[str, Any]:
        """What holds for all versions."""
        return meta_entity(self.kind, self.id, self.resource, self.xid, self.epoch, self.url)

    def answer(self, details: bool) -> Answer:
        """The default version's document, or the resource's metadata."""
        return self._answer(self.entity(), self.resource.default, details)

    def version_answer(self, number: str, details: bool) -> Answer:
        """A version's document, or its metadata."""
        return self._answer(self.version(number), number, details)

    def _answer(self, entity: dict[str, Any], number: str, details: bool) -> Answer:
        document = self.kind.document
        if details or document is None:
            return Answer(entity)
        attributes = self.resource.versions[number]
        names = [f"{self.kind.singular}id", *_AS_HEADERS]
        headers = {f"xRegistry-{name}": _header(entity[name]) for name in names}
        headers["Content-Disposition"] = self.id
        return Answer(attributes[document], headers, attributes["contenttype"])


def _header(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
