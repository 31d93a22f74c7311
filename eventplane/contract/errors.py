"""What is wrong with a contract, all of it at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eventplane.errors import EventPlaneError


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault: where it stands (`routes.alarms.to`), what it is, and what to do about it."""

    path: str
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}; {self.remedy}"


class ContractError(EventPlaneError):
    """A contract cannot be used. `origin` names the file, `problems` every fault found in it."""

    def __init__(self, origin: str, problems: Sequence[Problem]) -> None:
        self.origin = origin
        self.problems = tuple(problems)
        lines = "\n".join(f"  {problem}" for problem in self.problems)
        super().__init__(f"{origin}: {len(self.problems)} problem(s)\n{lines}")
