"""The list prices in prices.toml, and what a count of units comes to."""

import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

Units = Counter[str]
"""How many of each billable unit, by its name in prices.toml. Fractions are allowed."""

_ROWS: Final = tomllib.loads(Path(__file__).with_name("prices.toml").read_text())
PRICES: Final[dict[str, float]] = {name: each["usd"] / each["per"] for name, each in _ROWS.items()}
"""US dollars of one unit."""

FREE: Final = {name: float(each["free"]) for name, each in _ROWS.items() if "free" in each}
"""Units of a month that each account gets for nothing."""

_NAMES: Final[Mapping[str, str]] = {name: each["name"] for name, each in _ROWS.items()}

IOT_BYTES: Final = 5 * 1024
"""What one message, rule or action of IoT Core is metered by."""

SQS_BYTES: Final = 64 * 1024
"""What one request of SQS is metered by."""


def dollars(units: Mapping[str, float]) -> float:
    """Return the price of `units`."""
    return sum(number * PRICES[name] for name, number in units.items())


def listed(units: Mapping[str, float]) -> str:
    """Return the numbers of `units` in words, for the note of a figure."""
    numbers = {
        _NAMES[name]: f"{number:,.0f}" if number >= 1_000 else f"{number:.3g}"
        for name, number in sorted(units.items())
        if number
    }
    return ", ".join(f"{name} {number}" for name, number in numbers.items())


def billed(units: Mapping[str, float]) -> dict[str, float]:
    """Return what of a month's `units` is billed to an account that uses nothing else."""
    return {name: max(0.0, number - FREE.get(name, 0.0)) for name, number in units.items()}


def chunks(size: int, of: int) -> int:
    """Return the units of `of` bytes in a payload of `size` bytes; an empty one is one as well."""
    return max(1, -(-size // of))


def scaled(units: Mapping[str, float], factor: float) -> Units:
    """Each number times `factor`."""
    return Counter({name: number * factor for name, number in units.items()})
