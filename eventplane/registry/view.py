"""The registry's HTTP API: what is at a path, in xRegistry's API view, and the errors of a request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeVar

from eventplane.errors import EventPlaneError
from eventplane.registry.document import ResourceView, export, identity
from eventplane.registry.model import GROUPS, Group, Registry, Resource, capabilities, model
from eventplane.values import whole_number

JSON: Final = "application/json; charset=utf-8"

LIMIT: Final = 100
"""Most entities of a collection in one answer. Ours: 100 messages are about 150 KB."""

DETAILS: Final = "$details"
"""At the end of a path: the metadata, where the path without it leads to a document."""

_AS_HEADERS: Final = ("versionid", "self", "xid", "epoch", "isdefault", "ancestor")
"""The attributes sent as headers of a document; the others are at `$details`, where nothing has to be
escaped."""

_SPECIFICATION: Final = "https://github.com/xregistry/spec/blob/main/core"


class RegistryError(EventPlaneError):
    """A request that cannot be answered, named as xRegistry names it.

    `status` is its HTTP status, `type` the URI of the error in xRegistry's specification, `subject` the
    requested path.
    """

    status: ClassVar[int]
    type: ClassVar[str]
    subject: str

    def document(self, instance: str) -> dict[str, Any]:
        """Return the body of the answer to the request for the URL `instance` (RFC 9457)."""
        return {
            "type": self.type,
            "title": str(self),
            "status": self.status,
            "instance": instance,
            "subject": self.subject,
        }


class ApiNotFoundError(RegistryError):
    """No entity of the model could have this path."""

    status = 404
    type = f"{_SPECIFICATION}/http.md#api_not_found"
    message = "The specified path ({subject}) is not supported; see /model for those that are."


class NotFoundError(RegistryError):
    """The contract in force has no such entity."""

    status = 404
    type = f"{_SPECIFICATION}/spec.md#not_found"
    message = "The targeted entity ({subject}) cannot be found; list the collection that it would be in."


class MethodNotAllowedError(RegistryError):
    """The registry shows the contract; it cannot be written."""

    status = 405
    type = f"{_SPECIFICATION}/spec.md#method_not_allowed"
    method: str
    message = "The method ({method}) is not supported for {subject}; change the contract and publish it."


class BadFlagError(RegistryError):
    """The query parameter `flag` has an invalid value."""

    status = 400
    type = f"{_SPECIFICATION}/spec.md#bad_request"
    flag: str
    remedy: str
    message = "The value of {flag} is not usable; {remedy}."


class UnavailableError(RegistryError):
    """The contract in force is not known yet, because the tables that it is read from do not answer."""

    status = 503
    type = f"{_SPECIFICATION}/spec.md#server_error"
    message = "The contract in force is not known yet; ask again in a moment."


class TooLargeError(RegistryError):
    """The requested document does not fit into one answer."""

    status = 406
    type = f"{_SPECIFICATION}/spec.md#too_large"
    message = "The answer for {subject} is too large for one response; read the collections, page by page."


@dataclass(frozen=True, slots=True)
class Representation:
    """An answer before it is HTTP: the JSON value `body` of `content_type`, and its `headers`."""

    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = JSON


@dataclass(frozen=True, slots=True)
class Page:
    """Some `ids` of a collection; `link` is the header that leads to the next page, '' on the last."""

    ids: tuple[str, ...]
    link: str


def page(ids: Iterable[str], query: Mapping[str, str], path: str, url: str) -> Page:
    """Return the page that `query` asks for of the collection at `path` and `url` (xRegistry's pagination).

    `after` is the last id of the page before: pages neither repeat nor leave out entities that stay in the
    registry meanwhile. Raises `BadFlagError`.
    """
    try:
        limit = whole_number(query.get("limit", LIMIT), LIMIT, 1)
    except ValueError as error:
        raise BadFlagError(path, "limit", f"ask for 1 to {LIMIT} entities") from error
    everything = sorted(ids)
    waiting = [each for each in everything if each > query.get("after", "")]
    shown = tuple(waiting[:limit])
    if len(waiting) <= limit:
        return Page(shown, "")
    # An id has no character that a URL would have to escape.
    return Page(shown, f'<{url}?limit={limit}&after={shown[-1]}>;rel="next";count={len(everything)}')


def _representation(
    view: ResourceView, entity: dict[str, Any], number: str, has_details: bool
) -> Representation:
    """Return the document of the version `number`, or with `has_details` its metadata `entity`."""
    document = view.kind.document
    if has_details or document is None:
        return Representation(entity)
    attributes = view.resource.versions[number]
    names = [f"{view.kind.singular}id", *_AS_HEADERS]
    headers = {f"xRegistry-{name}": _header(entity[name]) for name in names}
    headers["Content-Disposition"] = view.id
    return Representation(attributes[document], headers, attributes["contenttype"])


def _header(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_DOCUMENTS: Final[Mapping[str, Callable[[Registry], Any]]] = {
    "capabilities": lambda _: capabilities(),
    "export": export,
    "model": lambda _: model(),
}

_Entity = TypeVar("_Entity")


def look_up(registry: Registry, path: str, query: Mapping[str, str], base: str) -> Representation:
    """Answer a GET of `path`, which begins with a slash; `base` is the registry's URL without one.

    Raises `ApiNotFoundError`, `NotFoundError`, `BadFlagError`.
    """
    return _Request(registry, path, query, base).answer()


@dataclass(frozen=True, slots=True)
class _Request:
    registry: Registry
    path: str
    query: Mapping[str, str]
    base: str

    def answer(self) -> Representation:
        match [each for each in self.path.split("/") if each]:
            case []:
                return Representation(self._root())
            case [name] if name in _DOCUMENTS:
                return Representation(_DOCUMENTS[name](self.registry))
            case [plural, *steps] if plural in GROUPS:
                return self._in_groups(plural, steps)
        raise ApiNotFoundError(self.path)

    def _in_groups(self, plural: str, steps: list[str]) -> Representation:
        groups = self.registry.groups[plural]
        if not steps:
            return self._collection(groups, lambda id, group: self._group(plural, id, group))
        group = self._found(groups, steps[0])
        match steps[1:]:
            case []:
                return Representation(self._group(plural, steps[0], group))
            case [name, *below] if name in GROUPS[plural].resources:
                return self._in_resources(plural, steps[0], name, below)
        raise ApiNotFoundError(self.path)

    def _in_resources(self, plural: str, group: str, name: str, steps: list[str]) -> Representation:
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
                return _representation(found, found.entity(), found.resource.default, last.endswith(DETAILS))
            case ["meta"] if last == "meta":
                return Representation(found.meta())
            case ["versions"] if last == "versions":
                return self._collection(found.resource.versions, lambda number, _: found.version(number))
            case ["versions", number]:
                self._found(found.resource.versions, number)
                return _representation(found, found.version(number), number, last.endswith(DETAILS))
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
    ) -> Representation:
        found = page(entities, self.query, self.path, self.base + self.path)
        return Representation(
            {id: entity(id, entities[id]) for id in found.ids}, {"Link": found.link} if found.link else {}
        )

    def _found(self, entities: Mapping[str, _Entity], id: str) -> _Entity:
        if id not in entities:
            raise NotFoundError(self.path)
        return entities[id]

    def _url(self, xid: str, has_document: bool) -> str:
        return f"{self.base}{xid}{DETAILS if has_document else ''}"
