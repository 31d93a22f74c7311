"""The list prices in prices.toml, and what a count of units comes to."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

Units = Counter[str]
"""How many of each billable unit, by its name in prices.toml. Fractions are allowed."""

FILE: Final = Path(__file__).with_name("prices.toml")
PRICES: Final = {name: each["usd"] / each["per"] for name, each in tomllib.loads(FILE.read_text()).items()}
"""US dollars of one unit."""

IOT_BYTES: Final = 5 * 1024
"""What one message, rule or action of IoT Core is metered by."""

SQS_BYTES: Final = 64 * 1024
"""What one request of SQS is metered by."""


def dollars(units: Mapping[str, float]) -> float:
    """What `units` cost."""
    return sum(number * PRICES[name] for name, number in units.items())


def chunks(size: int, of: int) -> int:
    """How many units of `of` bytes a payload of `size` bytes is; an empty one is one as well."""
    return max(1, -(-size // of))


def scaled(units: Mapping[str, float], factor: float) -> Units:
    """Each number times `factor`."""
    return Counter({name: number * factor for name, number in units.items()})  # type: ignore[arg-type]
