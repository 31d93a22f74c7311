"""CloudWatch's evaluation of an alarm, as far as the plane's alarms use it.

Sources: Amazon CloudWatch guide, "Alarm evaluation", "Configuring how CloudWatch alarms treat missing data",
"Using metric math" (FILL).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import gt, lt
from typing import Final

from tests.infrastructure.templates import Resource

MORE_PERIODS: Final = 2
"""Periods that CloudWatch looks at besides those asked for. The guide's examples have two, and no number."""

DAY_S: Final = 86_400
_STATISTICS: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {
    "Maximum": max, "Sum": sum, "SampleCount": len,
}  # fmt: skip


@dataclass(frozen=True)
class AlarmModel:
    """One alarm. `fill` is what stands for a period without data, None where nothing does."""

    period_s: int
    periods: int
    threshold: float
    is_breaching: Callable[[float, float], bool]
    is_silence_breaching: bool
    statistic: str
    fill: float | None

    @classmethod
    def of(cls, alarm: Resource) -> AlarmModel:
        """Read the alarm of a template."""
        metrics = alarm.find("Metrics") or []
        expression = next((each["Expression"] for each in metrics if "Expression" in each), "")
        filled = re.fullmatch(r"FILL\(m, (-?\d+)\)", expression)
        # Of several metrics a period without data has no value, as of one.
        assert filled or re.fullmatch(r"|SELECT .+|(MAX|SUM)\(METRICS\(\)\)", expression)
        stat = next((each["MetricStat"] for each in metrics if "MetricStat" in each), alarm.properties)
        assert alarm.find("DatapointsToAlarm") in (None, alarm.find("EvaluationPeriods"))
        return cls(
            # A query has its period beside it.
            period_s=stat.get("Period") or metrics[0]["Period"],
            periods=alarm.find("EvaluationPeriods"),
            threshold=alarm.find("Threshold"),
            is_breaching={"GreaterThanThreshold": gt, "LessThanThreshold": lt}[
                alarm.find("ComparisonOperator")
            ],
            is_silence_breaching=alarm.find("TreatMissingData") == "breaching",
            statistic=stat.get("Stat") or stat.get("Statistic") or "Sum",
            fill=float(filled[1]) if filled else None,
        )

    @property
    def window_s(self) -> int:
        """The time that is asked for, seconds."""
        return self.period_s * self.periods

    @property
    def every_s(self) -> int:
        """How often it is evaluated, seconds; its periods end then."""
        return 3_600 if self.window_s > DAY_S else 60

    def is_on(self, data: Mapping[float, float], now_s: float) -> bool:
        """Return whether it is in ALARM at `now_s`, with the metric's values by their times, seconds."""
        end_s = now_s // self.every_s * self.every_s
        points = [self._point(data, end_s - at * self.period_s) for at in range(self.periods + MORE_PERIODS)]
        real = [each for each in points if each is not None][: self.periods]
        states = [self.is_breaching(each, self.threshold) for each in real]
        # Missing data is made up only where there is too little in all that was looked at.
        states += [self.is_silence_breaching] * (self.periods - len(real))
        return all(states)

    def _point(self, data: Mapping[float, float], end_s: float) -> float | None:
        values = [value for at_s, value in data.items() if end_s - self.period_s <= at_s < end_s]
        return float(_STATISTICS[self.statistic](values)) if values else self.fill
