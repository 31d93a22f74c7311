"""What can be wrong with the input: each error names the file, and the line where there is one."""

from __future__ import annotations

from pathlib import Path

from local.errors import LocalError


class InputError(LocalError):
    """The input cannot be played."""


class InputBoundError(InputError):
    """HOMES or EVENTS has a value that cannot be met. `name` is the setting's."""

    def __init__(self, name: str, value: object, remedy: str) -> None:
        self.name, self.value = name, value
        super().__init__(f"{name}={value}: {remedy}")


class InputMissingError(InputError):
    """A data folder or file is not there."""

    def __init__(self, path: Path, remedy: str) -> None:
        self.path = path
        super().__init__(f"{path} is missing: {remedy}")


class InputFileError(InputError):
    """A data file cannot be read as what it should be."""

    def __init__(self, path: Path, problem: str) -> None:
        self.path = path
        super().__init__(f"{path}: {problem}; fetch the file again")


class InputRowError(InputError):
    """One row is wrong. `line` counts from 1, as editors do."""

    def __init__(self, path: Path, line: int, problem: str) -> None:
        self.path, self.line, self.problem = path, line, problem
        super().__init__(f"{path}, line {line}: {problem}; correct or remove the row")
