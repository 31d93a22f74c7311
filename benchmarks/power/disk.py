"""What a disk may hold after a power cut.

Of each file: all that was written before its last sync, and any part of what was written since, in any
order, torn at the sectors of the disk. Of the directory: all names up to its last sync, and the changes
since up to some point, because file systems write those in order.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random

from benchmarks.power.recording import Call, Create, Rename, Say, Sync, Truncate, Unlink, Write

SECTOR_BYTES = 512
BLOCK_BYTES = 4096

_Change = Write | Truncate
_Keep = Callable[[Random, list[_Change]], list[_Change]]


class Disk:
    """Follows the calls; `cut` says what is left if the power goes now."""

    def __init__(self) -> None:
        self._synced: dict[int, bytearray] = {}
        self._since: dict[int, list[_Change]] = {}
        self._names: dict[str, int] = {}
        self._renamings: list[Create | Rename | Unlink] = []

    def apply(self, call: Call) -> None:
        """The process made `call`."""
        match call:
            case Create(_, file):
                self._synced[file], self._since[file] = bytearray(), []
                self._renamings.append(call)
            case Rename() | Unlink():
                self._renamings.append(call)
            case Write(file) | Truncate(file):
                self._since[file].append(call)
            case Sync(None):
                for each in self._renamings:
                    _rename(self._names, each)
                self._renamings.clear()
            case Sync(file) if file is not None:
                for change in self._since[file]:
                    _change(self._synced[file], change)
                self._since[file].clear()
            case Say():
                pass

    def files(self) -> dict[str, int]:
        """Return the path of each file, as a process sees it, and its number."""
        names = dict(self._names)
        for each in self._renamings:
            _rename(names, each)
        return names

    def cut(self, random: Random, kept: str) -> dict[str, bytes]:
        """Names and contents; `kept` is one of `KEPT`."""
        names = dict(self._names)
        count = {"nothing": 0, "all": len(self._renamings)}.get(kept, random.randint(0, len(self._renamings)))
        for each in self._renamings[:count]:
            _rename(names, each)
        found = {}
        for name, file in names.items():
            contents = bytearray(self._synced[file])
            for change in KEPT[kept](random, self._since[file]):
                _change(contents, change)
            found[Path(name).name] = bytes(contents)
        return found


def _some(random: Random, changes: list[_Change]) -> list[_Change]:
    share = random.random()
    return [each for each in changes if random.random() < share]


def _first(random: Random, changes: list[_Change]) -> list[_Change]:
    return changes[: random.randint(0, len(changes))]


def _torn_at(size: int) -> _Keep:
    def torn(random: Random, changes: list[_Change]) -> list[_Change]:
        return [
            part for each in _some(random, changes) for part in _parts(each, size) if random.random() < 0.5
        ]

    return torn


KEPT: dict[str, _Keep] = {
    "nothing": lambda _random, _changes: [],
    "all": lambda _random, changes: changes,
    "first": _first,
    "some": _some,
    "sectors": _torn_at(SECTOR_BYTES),
    "blocks": _torn_at(BLOCK_BYTES),
}
"""Of the changes since the last sync."""


def _parts(change: _Change, size: int) -> list[_Change]:
    if isinstance(change, Truncate):
        return [change]
    end = change.offset + len(change.data)
    borders = [change.offset, *range((change.offset // size + 1) * size, end, size), end]
    return [
        Write(change.file, start, change.data[start - change.offset : stop - change.offset])
        for start, stop in pairwise(borders)
    ]


def _change(contents: bytearray, change: _Change) -> None:
    if isinstance(change, Truncate):
        contents[change.size :] = bytes(max(0, change.size - len(contents)))
        return
    gap = change.offset - len(contents)
    if gap > 0:
        contents.extend(bytes(gap))
    contents[change.offset : change.offset + len(change.data)] = change.data


def _rename(names: dict[str, int], change: Create | Rename | Unlink) -> None:
    if isinstance(change, Create):
        names[change.path] = change.file
    else:
        file = names.pop(change.path)
        if isinstance(change, Rename):
            names[change.new] = file
