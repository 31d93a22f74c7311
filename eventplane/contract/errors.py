"""Why a contract cannot be used: every problem with its place and its remedy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eventplane.errors import EventPlaneError


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault: where it is (`routes.alarms.to`), what it is, and what to do.

    `excerpt` shows the place in a longer text, with a caret under it; '' where the path is enough.
    """

    path: str
    message: str
    remedy: str
    excerpt: str = ""

    def __str__(self) -> str:
        lines = (f"{self.path}: {self.message}; {self.remedy}", *self.excerpt.splitlines())
        return "\n      ".join(lines)


class ContractError(EventPlaneError):
    """A contract cannot be used. `origin` names the file, `problems` are all the faults found in it."""

    origin: str
    problems: Sequence[Problem]
    message = "{origin}: {count} problem(s)\n{lines}"

    @property
    def count(self) -> int:
        return len(self.problems)

    @property
    def lines(self) -> str:
        return "\n".join(f"  {each}" for each in self.problems)

    @property
    def line(self) -> str:
        """The first problem, in one line with the file and the remedy, and how many others there are."""
        first, *others = self.problems
        more = (
            f" (and {len(others)} more: eventplane contract check --contract {self.origin})" if others else ""
        )
        return f"{self.origin}: {first.path}: {first.message}; {first.remedy}{more}"


class ContractFormatError(ContractError):
    """A contract is of the format `found`, which is newer than `readable`, the newest this program knows."""

    def __init__(self, origin: str, found: int, readable: int) -> None:
        self.found = found
        self.readable = readable
        message = f"format {found} is newer than this program, which reads up to format {readable}"
        remedy = "update the program, or compile the contract again with the version of it that runs here"
        super().__init__(origin, [Problem("format", message, remedy)])
