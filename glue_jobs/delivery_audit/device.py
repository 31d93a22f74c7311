"""One device: its hours as the tap has them, judged. Pure Python, over what Spark brought together."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any, Final

from glue_jobs.delivery_audit.completeness import Completeness
from glue_jobs.delivery_audit.device_evidence import DeviceEvidence, date_of, hour_of
from glue_jobs.delivery_audit.device_reports import Report, told
from glue_jobs.delivery_audit.numbers import Range, length, merged

COUNTS: Final = ("stated", "missing", "explained", "lost", "acknowledged_lost", "pending", "not_stored")
"""What a device's manifests and reports of a day come to."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What the judgement depends on: the channels `uplinks`, the watermark, whether all days are read."""

    uplinks: frozenset[str]
    watermark_ms: int
    sees_all: bool


class Device:
    """The device of `row` (`devices.hours_by_device`); the fleet's quickest way up takes `usual_ms`."""

    def __init__(self, row: Any, scope: Scope, usual_ms: int) -> None:
        self._client_id = row["client_id"]
        self._hours = row["hours"]
        self._skew = usual_ms - row["least_ms"] if row["least_ms"] is not None else None
        reports = [_report(hour, each) for hour in self._hours for each in hour["reports"]]
        self._told = told(self._client_id, reports, scope.uplinks)
        seen: dict[str, list[Range]] = defaultdict(list)
        for hour in self._hours:
            if hour["epoch"] is not None:
                seen[hour["epoch"]] += zip(hour["starts"], hour["ends"], strict=True)
        numbers = {epoch: ranges for epoch, ranges in seen.items() if ranges}
        self._completeness = Completeness(
            numbers, self._told, sees_all=scope.sees_all, watermark_ms=scope.watermark_ms
        )
        self._judged = list(self._completeness.judged())

    def judged(self) -> tuple[Any, ...]:
        """A row of `devices.JUDGED`."""
        days = self._days()
        findings = DeviceEvidence(
            self._client_id, self._hours, self._skew, self._told, self._completeness, self._judged
        )
        lost = sum(day["lost"] for day in days)
        told_days = [(each["date"], *self._row(each)) for each in days]
        epochs = [self._row(each) for each in self._epochs(days)]
        return self._client_id, lost, list(findings.found()), told_days, epochs, self._told_hours()

    def _row(self, figures: dict[str, Any]) -> tuple[Any, ...]:
        names = ("epoch", "first", "last", "events", "gaps", "tap_copies", *COUNTS)
        return self._client_id, *(figures.get(name) for name in names), self._skew

    def _days(self) -> list[dict[str, Any]]:
        days: dict[tuple[str, str | None], dict[str, Any]] = {}

        def day(date: str, epoch: str | None) -> dict[str, Any]:
            none: dict[str, Any] = {"date": date, "epoch": epoch, "events": 0, "tap_copies": 0, "ranges": []}
            return days.setdefault((date, epoch), {**none, **dict.fromkeys(COUNTS, 0)})

        for hour in self._hours:
            if hour["within"]:
                # Without a number, the epoch is as good as none.
                numbered = hour["epoch"] is not None and len(hour["starts"]) > 0
                sum_ = day(date_of(hour["first"]["accepted_at_ms"]), hour["epoch"] if numbered else None)
                sum_["events"] += hour["events"]
                sum_["tap_copies"] += hour["tap_copies"]
                sum_["ranges"] += zip(hour["starts"], hour["ends"], strict=True)
        for each in self._judged:
            sum_ = day(each.statement.report.date, each.statement.epoch)
            sum_["stated"] += each.statement.count
            sum_["missing"] += each.missing
            sum_["explained"] += each.explained
            sum_["pending" if each.open else "lost"] += each.unexplained
            sum_["acknowledged_lost"] += 0 if each.open else each.acknowledged
        for refused in self._told.not_stored:
            if refused.report.within:
                day(refused.report.date, refused.report.epoch)["not_stored"] += refused.count
        return [_counted(days[key]) for key in sorted(days, key=lambda key: (key[0], key[1] or ""))]

    def _epochs(self, days: list[dict[str, Any]]) -> list[dict[str, Any]]:
        by_epoch: dict[str | None, dict[str, Any]] = {}
        for day in days:
            whole = by_epoch.setdefault(day["epoch"], {"epoch": day["epoch"], "ranges": [], **Counter()})
            whole["ranges"] += day["ranges"]
            for name in ("events", "tap_copies", *COUNTS):
                whole[name] = whole.get(name, 0) + day[name]
        return [_counted(each) for each in by_epoch.values()]

    def _told_hours(self) -> list[tuple[Any, ...]]:
        hours: dict[str, Counter[str]] = defaultdict(Counter)
        for hour in self._hours:
            if hour["within"]:
                counted = hours[hour_of(hour["first"]["accepted_at_ms"])]
                counted.update({name: hour[name] for name in ("events", "lost", "late", "pending")})
        for each in self._judged:
            # What never came is told by the manifest's hour.
            name = "pending" if each.open else "lost"
            hours[hour_of(each.statement.report.accepted_at_ms)][name] += each.unexplained
        names = ("events", "lost", "late", "pending")
        return [(hour, *(counted[name] for name in names)) for hour, counted in sorted(hours.items())]


def _counted(figures: dict[str, Any]) -> dict[str, Any]:
    """With what the numbers come to; where there are none, events count themselves."""
    ranges = merged(figures["ranges"])
    if not ranges:
        return {**figures, "first": None, "last": None, "gaps": None}
    first, last, seen = ranges[0][0], ranges[-1][1], length(ranges)
    return {**figures, "first": first, "last": last, "events": seen, "gaps": last - first + 1 - seen}


def _report(hour: Any, row: Any) -> Report:
    return Report(within=hour["within"], date=date_of(row["accepted_at_ms"]), **row.asDict())
