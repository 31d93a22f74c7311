"""Reading a report in a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Audit = Callable[..., dict[str, Any]]
FAULTS = (
    "lost",
    "misrouted",
    "unexplained",
    "duplicated",
    "dead_lettered",
    "expired",
    "dropped",
    "quarantined",
)


def faults(report: dict[str, Any]) -> dict[str, int]:
    """The figures that should be zero, where they are not."""
    return {name: report["totals"][name] for name in FAULTS if report["totals"][name]}


def by_route(report: dict[str, Any], route: str) -> dict[str, Any]:
    return next(each for each in report["routes"] if each["route"] == route)
