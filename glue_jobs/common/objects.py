"""The archive as objects: listed, read, and replaced one at a time, each seen whole or not at all.

Spark reads and writes rows; what must be atomic, or is about versions, goes this way.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Stored:
    """An object: its `name` from the archive's root, `size` in bytes, `mark` changes with its content."""

    name: str
    size: int
    mark: str


@dataclass(frozen=True, slots=True)
class OldVersions:
    """How many old versions were `deleted`, and how many are `locked` until their retention ends."""

    deleted: int
    locked: int

    @classmethod
    def sum(cls, each: Iterable[OldVersions]) -> OldVersions:
        """Return all of `each` together."""
        found = list(each)
        return cls(sum(one.deleted for one in found), sum(one.locked for one in found))


class Objects(Protocol):
    """An archive's objects. Names are from its root."""

    @property
    def uri(self) -> str:
        """Where the archive lies, without a slash at the end."""

    def beneath(self, folder: str) -> list[Stored]:
        """What lies anywhere beneath `folder`, in the order of names."""

    def folders(self, folder: str) -> list[str]:
        """The names of the folders right beneath `folder` ('' for the root), in order."""

    def read(self, name: str) -> bytes | None:
        """An object's content; None when there is none."""

    def write(self, name: str, body: bytes) -> None:
        """Put `body` at `name`, in place of what was there."""

    def move(self, name: str, target: str) -> None:
        """Give an object another name, in place of what was there."""

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; those that are gone already are no error."""

    def delete_old_versions(self, prefix: str) -> OldVersions:
        """Delete for good what the objects whose names start with `prefix` were before."""
