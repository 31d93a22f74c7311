"""What is at a path of the registry's HTTP API, in xRegistry's API view."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from eventplane.registry.document import Locate, export, identity, meta_entity, version_entity
from eventplane.registry.errors import ApiNotFoundError, BadFlagError, NotFoundError
from eventplane.registry.model import GROUPS, Group, Registry, Resource, ResourceType, capabilities, model
from eventplane.values import whole_number

JSON: Final = "application/json; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Answer:
    """The JSON value `body` of `content_type`, and the `headers` that go with it."""

    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = JSON


LIMIT: Final = 100
"""Most entities of a collection in one answer. Ours: 100 messages are about 150 KB."""


@dataclass(frozen=True, slots=True)
class Page:
    """Some `ids` of a collection; `link` is the header that leads to the next page, '' on the last."""

    ids: tuple[str, ...]
    link: str


def page(ids: Iterable[str], query: Mapping[str, str], path: str, url: str) -> Page:
    """The page that `query` asks for; `path` is what was asked for, `url` the collection's.

    `after` is the id that the page before ended with: pages neither repeat nor leave out what stays in the
    registry while somebody reads them. Raises `BadFlagError`.
    """
    limit = _limit(query.get("limit"), path)
    everything = sorted(ids)
    waiting = [each for each in everything if each > query.get("after", "")]
    shown = tuple(waiting[:limit])
    if len(waiting) <= limit:
        return Page(shown, "")
    # An id has no character that a URL would have to escape.
    return Page(shown, f'<{url}?limit={limit}&after={shown[-1]}>;rel="next";count={len(everything)}')


def _limit(text: str | None, path: str) -> int:
    if text is None:
        return LIMIT
    try:
        return whole_number(text, LIMIT, 1)
    except ValueError as error:
        raise BadFlagError(path, "limit", f"ask for 1 to {LIMIT} entities") from error


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


_DOCUMENTS: Final[Mapping[str, Callable[[Registry], Any]]] = {
    "capabilities": lambda _: capabilities(),
    "export": export,
    "model": lambda _: model(),
}

_Entity = TypeVar("_Entity")


def look_up(registry: Registry, path: str, query: Mapping[str, str], base: str) -> Answer:
    """The answer to a GET of `path`, which begins with a slash; `base` is the registry's URL without one.

    Raises `ApiNotFoundError`, `NotFoundError`, `BadFlagError`.
    """
    return _Request(registry, path, query, base).answer()


@dataclass(frozen=True, slots=True)
class _Request:
    registry: Registry
    path: str
    query: Mapping[str, str]
    base: str

    def answer(self) -> Answer:
        match [each for each in self.path.split("/") if each]:
            case []:
                return Answer(self._root())
            case [name] if name in _DOCUMENTS:
                return Answer(_DOCUMENTS[name](self.registry))
            case [plural, *steps] if plural in GROUPS:
                return self._in_groups(plural, steps)
        raise ApiNotFoundError(self.path)

    def _in_groups(self, plural: str, steps: list[str]) -> Answer:
        groups = self.registry.groups[plural]
        if not steps:
            return self._collection(groups, lambda id, group: self._group(plural, id, group))
        group = self._found(groups, steps[0])
        match steps[1:]:
            case []:
                return Answer(self._group(plural, steps[0], group))
            case [name, *below] if name in GROUPS[plural].resources:
                return self._in_resources(plural, steps[0], name, below)
        raise ApiNotFoundError(self.path)

    def _in_resources(self, plural: str, group: str, name: str, steps: list[str]) -> Answer:
        resources = self.registry.groups[plural][group].resources[name]

        def view(id: str, resource: Resource) -> ResourceView:
            xid = f"/{plural}/{group}/{name}/{id}"
            kind = GROUPS[plural].resources[name]
            return ResourceView(kind, id, resource, xid, self.registry.epoch, self._url)

        if not steps:
            return self._collection(resources, lambda id, resource: view(id, resource).entity())
        last = steps[-1]
        steps[-1] = last.removesuffix(DETAILS)
        found = view(steps[0], self._found(resources, steps[0]))
        match steps[1:]:
            case []:
                return found.answer(last.endswith(DETAILS))
            case ["meta"] if last == "meta":
                return Answer(found.meta())
            case ["versions"] if last == "versions":
                return self._collection(found.resource.versions, lambda number, _: found.version(number))
            case ["versions", number]:
                self._found(found.resource.versions, number)
                return found.version_answer(number, last.endswith(DETAILS))
        raise ApiNotFoundError(self.path)

    def _root(self) -> dict[str, Any]:
        entity = {"self": f"{self.base}/", "xid": "/", "epoch": self.registry.epoch}
        return {**self.registry.attributes, **entity, **self._counts("", self.registry.groups)}

    def _group(self, plural: str, id: str, group: Group) -> dict[str, Any]:
        xid = f"/{plural}/{id}"
        return {
            **identity(GROUPS[plural].singular, id, xid, self.registry.epoch, self._url),
            **group.attributes,
            **self._counts(xid, group.resources),
        }

    def _counts(self, within: str, collections: Mapping[str, Mapping[str, object]]) -> dict[str, Any]:
        counts: dict[str, Any] = {}
        for plural, entities in collections.items():
            counts[f"{plural}url"] = f"{self.base}{within}/{plural}"
            counts[f"{plural}count"] = len(entities)
        return counts

    def _collection(
        self, entities: Mapping[str, _Entity], entity: Callable[[str, _Entity], dict[str, Any]]
    ) -> Answer:
        found = page(entities, self.query, self.path, self.base + self.path)
        return Answer(
            {id: entity(id, entities[id]) for id in found.ids}, {"Link": found.link} if found.link else {}
        )

    def _found(self, entities: Mapping[str, _Entity], id: str) -> _Entity:
        if id not in entities:
            raise NotFoundError(self.path)
        return entities[id]

    def _url(self, xid: str, has_document: bool) -> str:
        return f"{self.base}{xid}{DETAILS if has_document else ''}"
