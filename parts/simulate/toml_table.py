"""A table of a TOML file that a person wrote, read as the contract is; the first mistake is an error."""

from __future__ import annotations

import tomllib
from math import isnan
from pathlib import Path
from typing import Any, Final, NoReturn

from eventplane.contract.reader import Section
from parts.simulate.errors import SimulationInputError

MOST_BYTES: Final = 1024 * 1024
"""Of a file. Ours: some thousand types of events."""


class TomlTable(Section):
    """The table at `path` in `file`."""

    def __init__(self, file: str, path: str, members: object) -> None:
        self.file = file
        super().__init__(path, members, [])

    def fault(self, name: str, message: str, remedy: str) -> NoReturn:
        """Raise `SimulationInputError` about the value `name`, or about the table."""
        place = ".".join(filter(None, (self.path, name))) or "the file"
        raise SimulationInputError(self.file, place, message, remedy)

    def section(self, name: str) -> TomlTable:
        """Return a table in this one, an empty one where there is none."""
        return TomlTable(self.file, ".".join(filter(None, (self.path, name))), self.raw(name))

    def number(self, name: str, low: float, high: float, default: float | None = None) -> float:
        """Return a number from `low` to `high`."""
        return self.checked(name, self._take(name, default), low, high)

    def checked(self, name: str, value: Any, low: float, high: float) -> float:
        """Return `value`, of a member `name`, as a number from `low` to `high`."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and not isnan(value)
        if not is_number or not low <= value <= high:
            problem = "it is missing" if value is None else f"{value!r:.60} is no number in its range"
            self.fault(name, problem, f"give a number from {low:g} to {high:g}")
        return float(value)

    def numbers(self, name: str, low: float, high: float) -> list[float]:
        """Return a list of numbers."""
        values = self._take(name, [])
        if not isinstance(values, list):
            self.fault(name, "it is no list", "write numbers in square brackets")
        return [self.checked(name, each, low, high) for each in values]


def read_table(file: str, content: bytes) -> TomlTable:
    """Return the TOML text `content` of `file`. Raises `SimulationInputError`."""
    try:
        return TomlTable(file, "", tomllib.loads(content.decode("utf-8")))
    except (ValueError, RecursionError) as error:
        raise SimulationInputError(file, "the file", f"it is no TOML: {error}", "correct it there") from error


def bounded(path: Path) -> bytes:
    """Return the content of a file. Raises `SimulationInputError` for one that is too large, `OSError`."""
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        problem = f"it is larger than {MOST_BYTES:,} bytes"
        raise SimulationInputError(str(path), "the file", problem, "write a shorter one")
    return content
