"""What an environment may cost before somebody is told."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from stacks.setting_error import EnvironmentSettingError

_EMAIL: Final = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")

MOST_SUBSCRIBERS: Final = 10
"""E-mail addresses that a notification of AWS Budgets takes."""


@dataclass(frozen=True, kw_only=True)
class CostSettings:
    """Who is told when an environment becomes expensive, by e-mail. AWS charges nothing for it.

    Costs are those of what carries the tag `plane`, which has to be activated in the Billing console as a
    cost allocation tag; a day passes until it counts.

    Args:
        subscribers: e-mail addresses.
        monthly_usd: what a month may cost; told at 80 % and 100 % of it, and when AWS forecasts more.
        anomaly_usd: told when AWS's anomaly detection finds that costs exceed the usual by so much.
    """

    subscribers: tuple[str, ...]
    monthly_usd: float
    anomaly_usd: float

    def __post_init__(self) -> None:
        if not 1 <= len(self.subscribers) <= MOST_SUBSCRIBERS:
            raise EnvironmentSettingError(
                "costs.subscribers", f"has {len(self.subscribers)} addresses, not 1 to {MOST_SUBSCRIBERS}"
            )
        for address in self.subscribers:
            if not _EMAIL.fullmatch(address):
                raise EnvironmentSettingError("costs.subscribers", f"has {address!r}, no e-mail address")
        for setting in ("monthly_usd", "anomaly_usd"):
            if (value := getattr(self, setting)) <= 0:
                raise EnvironmentSettingError(f"costs.{setting}", f"is {value}, not more than 0")
