"""The answers to the questions against the audit's report of the same archive: they must be the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.audit.questions import ANSWERS


class DisagreementError(Exception):
    """The audit and the plain questions give other counts; `counts` has both, the audit's first."""

    def __init__(self, counts: Mapping[str, tuple[Any, Any]]) -> None:
        told = "; ".join(
            f"{name}: {audit} by the audit, {other} by SQL" for name, (audit, other) in counts.items()
        )
        super().__init__(f"{told}; one of them is wrong: follow a finding of each kind to the archive")
        self.counts = dict(counts)


def check(answers: Path, report: Mapping[str, Any]) -> dict[str, Any]:
    """The counts in the folder `answers`, which the `report` must have too. Raises `DisagreementError`."""
    found = json.loads((answers / ANSWERS).read_text())
    kinds = {f"{each['kind']} {each['hop']}": each["count"] for each in report["kinds"]}
    audited: dict[str, Any] = {name: kinds.get(name, 0) for name in found}
    audited["events_archived"] = report["totals"]["events_archived"]
    audited["delivered"] = {name: each["delivered_total"] for name, each in report["by_destination"].items()}
    if differing := {name: (audited[name], found[name]) for name in found if audited[name] != found[name]}:
        raise DisagreementError(differing)
    return audited
