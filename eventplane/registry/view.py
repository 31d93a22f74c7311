"""What is at a path of the registry's HTTP API, in xRegistry's API view."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from eventplane.registry.answer import Answer
from eventplane.registry.document import export
from eventplane.registry.entities import Group, Registry, Resource
from eventplane.registry.errors import ApiNotFoundError, NotFoundError
from eventplane.registry.model import GROUPS, capabilities, model
from eventplane.registry.paging import page
from eventplane.registry.resource_view import DETAILS, ResourceView
from eventplane.registry.serial import identity

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
