"""A table of a TOML file that a person wrote: each value is read once, and what is left over is a mistake."""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from math import isnan
from pathlib import Path
from typing import Any, Final, NoReturn

from parts.simulate.errors import InputError

MOST_BYTES: Final = 1024 * 1024
"""Of a file. Ours: some thousand types of events."""


class Table:
    """The values of the table at `place` in `file`."""

    def __init__(self, file: str, place: str, values: Any) -> None:
        self.file, self.place = file, place
        if not isinstance(values, dict):
            self.fail("", "it is no table", "write it as a table of TOML")
        self._values: dict[str, Any] = dict(values)

    def fail(self, name: str, problem: str, remedy: str) -> NoReturn:
        """Raise `InputError` about the value `name`, or about the table."""
        place = ".".join(filter(None, (self.place, name))) or "the file"
        raise InputError(self.file, place, problem, remedy)

    def has(self, name: str) -> bool:
        """Return whether a value was not read yet."""
        return name in self._values

    def take(self, name: str, default: Any = None) -> Any:
        """Return a value as it is, `default` where there is none."""
        return self._values.pop(name, default)

    def table(self, name: str) -> Table:
        """Return a table in this one, an empty one where there is none."""
        return Table(self.file, ".".join(filter(None, (self.place, name))), self.take(name, {}))

    def tables(self) -> list[tuple[str, Table]]:
        """Return all values, which are tables."""
        return [(name, self.table(name)) for name in list(self._values)]

    def text(self, name: str, default: str | None = None) -> str:
        """Return a text. Without a `default` there has to be one."""
        value = self.take(name, default)
        if not isinstance(value, str) or (default is None and not value.strip()):
            self.fail(name, "it is missing or no text", "write a text in quotation marks")
        return value

    def number(self, name: str, low: float, high: float, default: float | None = None) -> float:
        """Return a number from `low` to `high`."""
        value = self.take(name, default)
        if value is None:
            self.fail(name, "it is missing", f"give a number from {low:g} to {high:g}")
        return self.checked(name, value, low, high)

    def checked(self, name: str, value: Any, low: float, high: float) -> float:
        """Return `value` as a number from `low` to `high`."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and not isnan(value)
        if not is_number or not low <= value <= high:
            self.fail(name, f"{value!r:.60} is no number from {low:g} to {high:g}", "give another one")
        return float(value)

    def numbers(self, name: str, low: float, high: float) -> list[float]:
        """Return a list of numbers."""
        values = self.take(name, [])
        if not isinstance(values, list):
            self.fail(name, "it is no list", "write numbers in square brackets")
        return [self.checked(name, each, low, high) for each in values]

    def finish(self, known: Collection[str]) -> None:
        """Refuse what nothing has read."""
        for name in self._values:
            self.fail(name, "it means nothing here", f"write one of {', '.join(sorted(known))}, or remove it")


def read_table(path: Path) -> Table:
    """Return the TOML file at `path`. Raises `InputError`, `OSError`."""
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise InputError(
            str(path), "the file", f"it is larger than {MOST_BYTES:,} bytes", "write a shorter one"
        )
    return parse_table(str(path), content)


def parse_table(file: str, content: bytes) -> Table:
    """Return the TOML text `content` of `file`. Raises `InputError`."""
    try:
        return Table(file, "", tomllib.loads(content.decode("utf-8")))
    except (ValueError, RecursionError) as error:
        raise InputError(file, "the file", f"it is no TOML: {error}", "correct it there") from error
