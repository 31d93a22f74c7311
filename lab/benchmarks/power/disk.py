"""A disk under power cuts: what a process did to it, call by call, and what it may hold afterwards.

Of each file: all that was written before its last sync, and any part of what was written since, in any
order, torn at the sectors of the disk. Of the directory: all names up to its last sync, and the changes
since up to some point, because file systems write those in order.
"""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random

SECTOR_BYTES = 512
BLOCK_BYTES = 4096

_CALLS = "openat,close,pwrite64,write,ftruncate,fsync,fdatasync,rename,unlink"
_LINE = re.compile(r"(\w+)\((.*)\)\s+= (-?\d+)")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_STDOUT = 1
_LONGEST_WRITE = 1 << 20


@dataclass(frozen=True, slots=True)
class Create:
    """`path` now names the new file `file`."""

    path: str
    file: int


@dataclass(frozen=True, slots=True)
class Rename:
    """A rename of `path` to `new`."""

    path: str
    new: str


@dataclass(frozen=True, slots=True)
class Unlink:
    """`path` names nothing any more."""

    path: str


@dataclass(frozen=True, slots=True)
class Write:
    """`data` at `offset` of `file`."""

    file: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    """`file` has `size` bytes."""

    file: int
    size: int


@dataclass(frozen=True, slots=True)
class Sync:
    """All of `file` is on the disk; None: all names are."""

    file: int | None


@dataclass(frozen=True, slots=True)
class Print:
    """The process printed `line`, which others may have acted upon."""

    line: str


Call = Create | Rename | Unlink | Write | Truncate | Sync | Print


def record(
    directory: Path, program: str, *arguments: str, files: Mapping[str, int] | None = None
) -> list[Call]:
    """Run a program of `lab.benchmarks.power.workload`; return what it did in `directory`, and what it said.

    `files` are those that are in it, by path, with their numbers in an earlier recording.
    """
    directory.mkdir(exist_ok=True)
    trace = directory.with_name(directory.name + ".trace")
    options = ("-xx", "-s", str(_LONGEST_WRITE), "-e", f"trace={_CALLS}", "-o", str(trace))
    command = [sys.executable, "-m", "lab.benchmarks.power.workload", program, *arguments]
    subprocess.run(["strace", *options, *command], check=True, stdout=subprocess.DEVNULL)
    with trace.open(encoding="ascii") as lines:
        calls = list(_Reader(directory, files or {}).read(lines))
    trace.unlink()
    return calls


class _Reader:
    def __init__(self, directory: Path, files: Mapping[str, int]) -> None:
        self._directory = str(directory)
        self._open: dict[int, int | None] = {}
        # Where the next plain write goes, for files that were new when they were opened.
        self._ends: dict[int, int] = {}
        self._names = dict(files)
        self._files = max(files.values(), default=0)

    def read(self, lines: Iterator[str]) -> Iterator[Call]:
        for line in lines:
            match = _LINE.match(line)
            if match and int(match[3]) >= 0:
                yield from self._call(match[1], match[2], int(match[3]))

    def _call(self, name: str, arguments: str, result: int) -> Iterator[Call]:
        texts = [bytes.fromhex(text.replace("\\x", "")) for text in _TEXT.findall(arguments)]
        if name == "openat":
            yield from self._openat(texts[0].decode(), arguments, result)
        elif name in ("rename", "unlink"):
            yield from self._name([text.decode() for text in texts], name)
        else:
            yield from self._descriptor(name, arguments, texts)

    def _openat(self, path: str, flags: str, descriptor: int) -> Iterator[Call]:
        if path == self._directory:
            self._open[descriptor] = None
        elif path.startswith(self._directory + "/"):
            if path not in self._names:
                self._files += 1
                self._names[path] = self._files
                yield Create(path, self._files)
            self._open[descriptor] = self._names[path]
            self._ends[descriptor] = 0 if "O_EXCL" in flags else -1
            if "O_TRUNC" in flags:
                yield Truncate(self._names[path], 0)

    def _name(self, paths: list[str], name: str) -> Iterator[Call]:
        file = self._names.pop(paths[0], None)
        if file is None:
            return
        if name == "rename":
            self._names[paths[1]] = file
            yield Rename(*paths)
        else:
            yield Unlink(paths[0])

    def _descriptor(self, name: str, arguments: str, texts: list[bytes]) -> Iterator[Call]:
        fields = arguments.split(", ")
        descriptor = int(fields[0])
        if name == "write" and descriptor == _STDOUT:
            yield Print(texts[0].decode())
        if descriptor not in self._open:
            return
        file = self._open[descriptor]
        if name == "close":
            del self._open[descriptor]
        elif name in ("fsync", "fdatasync"):
            yield Sync(file)
        elif file is not None and name == "pwrite64":
            yield Write(file, int(fields[-1]), texts[0])
        elif file is not None and name == "ftruncate":
            yield Truncate(file, int(fields[-1]))
        elif file is not None and name == "write":
            start = self._ends[descriptor]
            if start < 0:
                raise AssertionError("a plain write to a file of the spool: its offset is not known")
            self._ends[descriptor] += len(texts[0])
            yield Write(file, start, texts[0])


_Change = Write | Truncate
_Keep = Callable[[Random, list[_Change]], list[_Change]]


class TracedDisk:
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
            case Print():
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
