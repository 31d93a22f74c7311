"""What is wrong with a contract, all of it at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eventplane.errors import EventPlaneError


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault: where it stands (`routes.alarms.to`), what it is, and what to do about it.

    `excerpt` shows the place inside a longer text, with a caret under it; '' when the path says enough.
    """

    path: str
    message: str
    remedy: str
    excerpt: str = ""

    def __str__(self) -> str:
        lines = (f"{self.path}: {self.message}; {self.remedy}", *self.excerpt.splitlines())
        return "\n      ".join(lines)


class ContractError(EventPlaneError):
    """A contract cannot be used. `origin` names the file, `problems` every fault found in it."""

    def __init__(self, origin: str, problems: Sequence[Problem]) -> None:
        self.origin = origin
        self.problems = tuple(problems)
        lines = "\n".join(f"  {problem}" for problem in self.problems)
        super().__init__(f"{origin}: {len(self.problems)} problem(s)\n{lines}")


class ContractFormatError(ContractError):
    """A contract is of the format `found`, which is newer than `readable`, the newest this program knows."""

    def __init__(self, origin: str, found: int, readable: int) -> None:
        self.found = found
        self.readable = readable
        message = f"format {found} is newer than this program, which reads up to format {readable}"
        remedy = "update the program, or compile the contract again with the version of it that runs here"
        super().__init__(origin, [Problem("format", message, remedy)])
