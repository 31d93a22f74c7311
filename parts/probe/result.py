"""The result of a run, step by step, for people and for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from operations import text
from parts.probe.control import Removal


class StepStatus(StrEnum):
    """The result of a step; one that needs a failed one is not run.

    One is `ABSENT` where the contract has nothing that it could test, and fails nothing.
    """

    PASSED = "passed"
    ABSENT = "absent"
    FAILED = "failed"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class Seen:
    """An observation: in words, how long the plane took (None: as long as the step), and what names it."""

    words: str
    latency_s: float | None = None
    reference: str | None = None


@dataclass(frozen=True, slots=True)
class StepResult:
    """`latency_s` is the plane's, `took_s` the step's. `requests` are the ids of the calls by operation, the
    last of each; `reference` is what names the step's message, or the last request, in logs."""

    name: str
    status: StepStatus
    words: str
    took_s: float = 0.0
    latency_s: float | None = None
    reference: str = ""
    requests: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """The result as JSON."""
        return {
            "step": self.name,
            "status": self.status.value,
            "took_s": round(self.took_s, 3),
            "latency_s": None if self.latency_s is None else round(self.latency_s, 3),
            "reference": self.reference,
            "requests": dict(self.requests),
            "detail": self.words,
        }


@dataclass(frozen=True, slots=True)
class RunReport:
    """A whole run. `kept` is what stays on purpose."""

    run: str
    environment: str
    account: str
    region: str
    steps: Sequence[StepResult]
    removed: Sequence[Removal]
    kept: Sequence[str]

    @property
    def is_passed(self) -> bool:
        """True if every step passed that the contract allows, and everything was removed."""
        return any(each.status is StepStatus.PASSED for each in self.steps) and not self.problems

    @property
    def problems(self) -> list[str]:
        """The failures in words."""
        good = StepStatus.PASSED, StepStatus.ABSENT
        failed = [each.name for each in self.steps if each.status not in good]
        return failed + [f"removal of {each.words}" for each in self.removed if each.problem]

    def document(self) -> dict[str, Any]:
        """The run as JSON."""
        return {
            "run": self.run,
            "environment": self.environment,
            "account": self.account,
            "region": self.region,
            "passed": self.is_passed,
            "steps": [each.document() for each in self.steps],
            "removed": [each.document() for each in self.removed],
            "kept": list(self.kept),
        }

    def text(self) -> str:
        """The run as a table, with the problems in full beneath it."""
        head = f"{self.environment}, account {self.account}, {self.region}; run {self.run}"
        rows = [
            (
                each.name,
                each.status.value,
                f"{each.took_s if each.latency_s is None else each.latency_s:.2f} s",
                each.reference,
                "see below" if each.status is StepStatus.FAILED else each.words,
            )
            for each in self.steps
        ]
        parts = [head, text.table(("step", "result", "latency", "request or message", "detail"), rows)]
        parts += [
            f"{each.name}: {text.word(each.words)}" for each in self.steps if each.status is StepStatus.FAILED
        ]
        gone = [each.words for each in self.removed if not each.problem]
        parts.append(f"removed: {'; '.join(gone) or 'nothing was made'}")
        parts += [
            f"NOT removed: {each.words}: {text.word(each.problem)}" for each in self.removed if each.problem
        ]
        parts += [f"stays: {each}" for each in self.kept]
        parts.append("passed" if self.is_passed else f"FAILED: {', '.join(self.problems)}")
        return "\n\n".join(parts[:2]) + "\n\n" + "\n".join(parts[2:])
