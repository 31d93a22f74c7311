"""Find a program's imports, direct or not, in its sources or in the log of a run."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Closure:
    """`files`: name of each module and package -> its source. `standard`: modules of the standard library."""

    files: dict[str, Path]
    standard: frozenset[str]


def closure(roots: Sequence[Path], *programs: str) -> Closure:
    """Return all that the modules `programs` import, directly or not, from the directories `roots`.

    Imports inside functions count, as they run some day. What is in none of the roots and no part of the
    standard library is optional: whoever needs it fails where the program is tested.
    """
    files: dict[str, Path] = {}
    standard: set[str] = set()
    waiting = list(programs)
    while waiting:
        name = waiting.pop()
        if name in files:
            continue
        source = _find(roots, name)
        if source is not None:
            files[name] = source
            waiting += [name.rpartition(".")[0]] if "." in name else []
            waiting += _imported(tuple(roots), name, source)
        elif name.partition(".")[0] in sys.stdlib_module_names:
            standard.add(name)
    return Closure(dict(sorted(files.items())), frozenset(standard))


def imported(log: str) -> set[str]:
    """Return the modules whose imports `python -X importtime` has written to `log`."""
    return set(re.findall(r"^import time: .*\| +([\w.]+)$", log, re.MULTILINE))


def sources(root: Path, modules: Collection[str]) -> list[Path]:
    """Return the files of those of `modules` that are in the directory `root`."""
    return [source for each in modules if (source := _find([root], each)) is not None]


def _find(roots: Sequence[Path], name: str) -> Path | None:
    for root in roots:
        place = root.joinpath(*name.split("."))
        for source in (place / "__init__.py", place.with_suffix(".py")):
            if source.is_file():
                return source
    return None


@cache  # a plane's functions have most modules in common
def _imported(roots: tuple[Path, ...], name: str, source: Path) -> list[str]:
    package = name if source.name == "__init__.py" else name.rpartition(".")[0]
    found: list[str] = []
    for node in ast.walk(ast.parse(source.read_bytes())):
        if isinstance(node, ast.Import):
            found += (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: -(node.level - 1) or None] if node.level else []
            start = ".".join([*base, *([node.module] if node.module else [])])
            found.append(start)
            # What is imported from a package may be a module in it.
            inner = (f"{start}.{each.name}" for each in node.names)
            found += (each for each in inner if _find(roots, each))
    return found
