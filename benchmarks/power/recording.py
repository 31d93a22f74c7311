"""What a process did to the files of a directory, call by call, as strace saw it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

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
    """What `path` named is now named `new`."""

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
class Say:
    """The process told `line`, which others may have acted upon."""

    line: str


Call = Create | Rename | Unlink | Write | Truncate | Sync | Say


def record(
    directory: Path, module: str, *arguments: str, files: Mapping[str, int] | None = None
) -> list[Call]:
    """Run `python -m module arguments` and return what it did in `directory`, and what it said.

    `files` are those that are in it, by path, with their numbers in an earlier recording.
    """
    directory.mkdir(exist_ok=True)
    trace = directory.with_name(directory.name + ".trace")
    options = ("-xx", "-s", str(_LONGEST_WRITE), "-e", f"trace={_CALLS}", "-o", str(trace))
    subprocess.run(
        ["strace", *options, sys.executable, "-m", module, *arguments], check=True, stdout=subprocess.DEVNULL
    )
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
            yield Say(texts[0].decode())
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
