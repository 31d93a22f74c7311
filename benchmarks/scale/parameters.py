"""The figures that everything here is computed from."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, Final

from benchmarks.results import FOLDER

_DOCUMENT: Final[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("parameters.toml").read_text())

DATE: Final = _DOCUMENT["measured"].pop("date")
MEASURED: Final[dict[str, float]] = _DOCUMENT["measured"]
"""The committed ones, so that the docs do not depend on what was run last."""

EVENTS_PER_S: Final[float] = _DOCUMENT["device"]["events_per_s"]
REPORTS_PER_S: Final[float] = _DOCUMENT["device"]["reports_per_s"]
PRODUCTION: Final[dict[str, int]] = _DOCUMENT["production"]
LOCAL: Final[dict[str, int]] = _DOCUMENT["local"]
QUOTAS: Final[dict[str, dict[str, Any]]] = _DOCUMENT["quota"]


def newest() -> dict[str, float]:
    """The committed figures, with those of the last runs on this machine in their place."""
    found = dict(MEASURED)
    for name in ("cloud", "cost"):
        file = FOLDER / f"{name}.json"
        if file.exists():
            values = {each["name"]: each["value"] for each in json.loads(file.read_text())["figures"]}
            found |= {each: values[each] for each in MEASURED.keys() & values.keys()}
    return found
