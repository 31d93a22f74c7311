"""What the window's deliveries come to: counts, and how long they took. No Spark."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import floor
from typing import Any, Final, TypeVar

from eventplane.ledger import HANDOVERS, LEDGER, TAP
from glue_jobs.delivery_audit.event_group import (
    EXPECTED,
    CountKey,
    InboxCount,
    LatencyKey,
    LetterCount,
    RouteCount,
    RowCount,
    Verdict,
)
from glue_jobs.delivery_audit.findings import Span
from glue_jobs.delivery_audit.judging import Judged

Rows = list[dict[str, Any]]
Key = TypeVar("Key", RouteCount, InboxCount, LetterCount, RowCount)

ROUTE_COUNTS = ("expected", *map(str, Verdict), "duplicated", "replayed", "events", "tap_copies")
_CONSUMER_COUNTS = (*map(str, EXPECTED), "duplicated")
_INBOX_COUNTS = ("delivered_unique", "delivered_total", "may_expire")


@dataclass(frozen=True, slots=True)
class Figures:
    """The sums over all that was judged."""

    judged: Judged

    @property
    def extent(self) -> dict[str, Any]:
        """How many rows were read (bad ones included), and when the first and the last were accepted."""
        rows: Counter[str] = Counter()
        for key, count in self._of(RowCount):
            rows[key.archive] += count
        first_ms, last_ms = self.judged.accepted_ms or (None, None)
        return {
            "tap_rows": rows[TAP],
            "first_accepted_ms": first_ms,
            "last_accepted_ms": last_ms,
            "ledger_rows": rows[LEDGER],
            "handover_rows": rows[HANDOVERS],
        }

    @property
    def routes(self) -> Rows:
        """One row for each `date` and `route`, the unrouted as a route called `NO_ROUTE`.

        A column for each verdict counts events; `expected` is the sum of the `EXPECTED` ones (nothing is
        expected of no route). `duplicated` counts the copies in inboxes beyond the first. `events` and
        `tap_copies` count each event on one of its routes only, so that they can be summed.
        """
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for key, count in self._of(RouteCount):
            if key.route is None or key.measure not in ROUTE_COUNTS:
                continue
            row = found.setdefault(
                (key.date, key.route),
                {"date": key.date, "route": key.route, "destination": None, **dict.fromkeys(ROUTE_COUNTS, 0)},
            )
            row["destination"] = max(filter(None, (row["destination"], key.destination)), default=None)
            row[key.measure] += count
        return [found[key] for key in sorted(found)]

    @property
    def by_destination(self) -> dict[str, dict[str, int]]:
        """What was written to each inbox, by the ledger alone: what its consumer must have received.

        `delivered_unique` counts events, `delivered_total` messages. `may_expire` counts the events with an
        `expirytime` in an inbox without handovers: nobody records whether its reader came in time.
        """
        found: defaultdict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(_INBOX_COUNTS, 0))
        for key, count in self._of(InboxCount):
            if key.measure in _INBOX_COUNTS and count:
                found[key.destination][key.measure] += count
        return {name: found[name] for name in sorted(found)}

    @property
    def consumers(self) -> Rows:
        """The figures of each webhook by `date` and `channel`."""
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for key, count in self._of(InboxCount):
            if key.measure not in _CONSUMER_COUNTS:
                continue
            row = found.setdefault(
                (key.date, key.destination),
                {
                    "date": key.date,
                    "channel": key.destination,
                    "expected": 0,
                    **dict.fromkeys(_CONSUMER_COUNTS, 0),
                },
            )
            row[key.measure] += count
            if key.measure in EXPECTED:
                row["expected"] += count
        return [found[key] for key in sorted(found)]

    @property
    def dead_letters(self) -> Rows:
        """How many dead letters there are, by `place` of their making and `reason`.

        `missing` counts the items that the cloud refused and did not record.
        """
        counts: defaultdict[tuple[str, str | None], list[int]] = defaultdict(lambda: [0, 0])
        for key, count in self._of(LetterCount):
            if key.measure in ("count", "missing"):
                counts[key.place, key.reason][key.measure == "missing"] += count
        return [
            {"place": key[0], "reason": key[1], "count": counts[key][0], "missing": counts[key][1]}
            for key in sorted(counts, key=lambda key: (key[0], key[1] or ""))
        ]

    @property
    def items(self) -> dict[str, int]:
        """Refused items without a record: `lost`, `pending` and `unrecorded`."""
        sums: Counter[str] = Counter()
        for key, count in self._of(LetterCount):
            sums[key.measure] += count
        pending, unrecorded = sums["pending"], sums["unrecorded"]
        lost = sums["missing"] - pending - unrecorded
        return {"lost": lost, "pending": pending, "unrecorded": unrecorded}

    @property
    def quarantine(self) -> Rows:
        """How many bad rows by `archive` and `reason`, with one `archive_file` to look at."""
        counts = {(key.archive, key.reason): n for key, n in self._of(RowCount) if key.reason is not None}
        return [
            {
                "archive": archive,
                "reason": reason,
                "rows": counts[archive, reason],
                "archive_file": self.judged.bad_files.get((archive, reason)),
            }
            for archive, reason in sorted(counts)
        ]

    @property
    def cloud_events(self) -> int:
        """Events that entered in the cloud."""
        return sum(count for key, count in self._of(RouteCount) if key.measure == "cloud_events")

    @property
    def to_replay(self) -> int:
        """Rows of the replay."""
        return sum(count for key, count in self._of(RouteCount) if key.measure == "to_replay")

    def _of(self, kind: type[Key]) -> Iterator[tuple[Key, int]]:
        counts: Counter[CountKey] = self.judged.judgement.counts
        return ((key, count) for key, count in counts.items() if isinstance(key, kind))


QUANTILES: Final = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99, "max_ms": 1.0}


def latency(samples: Mapping[LatencyKey, int]) -> list[dict[str, Any]]:
    """Exact quantiles in milliseconds: `hop, priority, route, samples, p50_ms .. max_ms`.

    A row for each hop, priority and route, and one with `route` null for all routes of a priority.

    A sample is one event on one route, at its first delivery. What starts at the device starts at the event's
    `recordedtime`: its `time` says when something happened, which for replayed data is long ago. Events
    without one give no sample there. Where a device's clock runs ahead of the cloud's, a hop is negative.
    """
    counted: defaultdict[tuple[str, str | None, str | None], Counter[int]] = defaultdict(Counter)
    for key, count in samples.items():
        counted[key.span, key.priority, key.route][key.ms] += count
        counted[key.span, key.priority, None][key.ms] += count
    order = {str(span): place for place, span in enumerate(Span)}
    found = sorted(counted, key=lambda key: (order[key[0]], key[1] or "", key[2] is not None, key[2] or ""))
    return [
        {"hop": span, "priority": priority, "route": route, **_quantiles(counted[span, priority, route])}
        for span, priority, route in found
    ]


def _quantiles(counts: Counter[int]) -> dict[str, Any]:
    """Between two samples a quantile is interpolated, as Spark's `percentile` does."""
    samples, passed = counts.total(), 0
    places = {name: (samples - 1) * share for name, share in QUANTILES.items()}
    between = {name: (floor(place), min(floor(place) + 1, samples - 1)) for name, place in places.items()}
    ranks, at = sorted({rank for pair in between.values() for rank in pair}), dict[int, int]()
    for ms in sorted(counts):
        passed += counts[ms]
        while ranks and ranks[0] < passed:
            at[ranks.pop(0)] = ms
    wanted = {
        name: at[low] + (at[high] - at[low]) * (places[name] - low) for name, (low, high) in between.items()
    }
    return {"samples": samples, **wanted}
