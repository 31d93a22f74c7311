"""The figures that everything here is computed from."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.results import FOLDER

_DOCUMENT: Final[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("parameters.toml").read_text())
_PUBLISHED: Final = Path(__file__).parents[2] / "docs" / "figures.json"
_RUNS: Final = ("audit", "cloud", "cost")

EVENTS_PER_S: Final[float] = _DOCUMENT["device"]["events_per_s"]
GATHERED: Final[int] = _DOCUMENT["device"]["gathered"]
REPORTS_PER_S: Final[float] = _DOCUMENT["device"]["reports_per_s"]
PRODUCTION: Final[dict[str, int]] = _DOCUMENT["production"]
LOCAL: Final[dict[str, int]] = _DOCUMENT["local"]
QUOTAS: Final[dict[str, dict[str, Any]]] = _DOCUMENT["quota"]


def published() -> dict[str, float]:
    """The published figures, so that the docs do not depend on what was run last."""
    results = json.loads(_PUBLISHED.read_text())
    return _values(results[f"bench/{name}"] for name in _RUNS)


def newest() -> dict[str, float]:
    """The published figures, with those of the last runs on this machine in their place."""
    files = [file for name in _RUNS if (file := FOLDER / f"{name}.json").exists()]
    return published() | _values(json.loads(file.read_text()) for file in files)


def _values(results: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    return {each["name"]: each["value"] for result in results for each in result["figures"]}


REGION: Final = "us-east-1"
"""Whose quotas docs/explanation/scale.md shows."""


def limit(quota: str, region: str) -> float | None:
    """The default of a quota in a `region`; None where it is unknown to us."""
    found: dict[str, float] = QUOTAS[quota]["limit"]
    return found.get("everywhere", found.get(region))
