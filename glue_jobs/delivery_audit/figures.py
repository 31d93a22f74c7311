"""The sums of an audit over all that was judged."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from eventplane.account import Fate
from eventplane.ledger import HANDOVERS, LEDGER, TAP
from glue_jobs.delivery_audit.event_group import (
    EXPECTED,
    AccountCount,
    CountKey,
    DeadLetterCount,
    InboxCount,
    RouteCount,
    RowCount,
    Ruling,
)
from glue_jobs.delivery_audit.judging import Judged

Rows = list[dict[str, Any]]
CountT = TypeVar("CountT", bound=CountKey)
MeasuredT = TypeVar("MeasuredT", RouteCount, InboxCount, AccountCount, DeadLetterCount)

ROUTE_COUNTS = ("expected", *map(str, Ruling), "duplicated", "replayed", "events", "tap_copies")
_CONSUMER_COUNTS = (*map(str, EXPECTED), "duplicated")
_INBOX_COUNTS = ("delivered_unique", "delivered_total", "may_expire")


@dataclass(frozen=True, slots=True)
class Figures:
    """The sums over all that was judged."""

    judged: Judged

    @property
    def extent(self) -> dict[str, Any]:
        """Return the number of rows read (also bad ones), and when the first and the last were accepted."""
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
        reached: dict[tuple[str, str | None], list[str]] = defaultdict(list)
        for key, _ in self._of(RouteCount):
            reached[key.date, key.route] += filter(None, [key.destination])
        return [
            {"date": date, "route": route, "destination": max(reached[date, route], default=None), **counts}
            for (date, route), counts in self._sums(RouteCount, ROUTE_COUNTS, "date", "route")
            if route is not None
        ]

    @property
    def by_destination(self) -> dict[str, dict[str, int]]:
        """Return the events written to each inbox, by the ledger alone: what its consumer must have received.

        `delivered_unique` counts events, `delivered_total` messages. `may_expire` counts the events with an
        `expirytime` in an inbox without handovers: no record says whether its reader came in time.
        """
        found = self._sums(InboxCount, _INBOX_COUNTS, "destination")
        return {name: counts for (name,), counts in found if any(counts.values())}

    @property
    def accounts(self) -> Rows:
        """Count the events at each `inbox`, null for all: a column for each word of the account."""
        found = self._sums(AccountCount, tuple(map(str, Fate)), "inbox")
        return [{"inbox": inbox or None, **counts} for (inbox,), counts in found]

    @property
    def consumers(self) -> Rows:
        """The figures of each webhook by `date` and `channel`."""
        return [
            {"date": date, "channel": channel, "expected": sum(map(counts.__getitem__, EXPECTED)), **counts}
            for (date, channel), counts in self._sums(InboxCount, _CONSUMER_COUNTS, "date", "destination")
        ]

    @property
    def dead_letters(self) -> Rows:
        """Count the dead letters, by `place` of their making and `reason`.

        `missing` counts the items that the cloud refused and did not record.
        """
        found = self._sums(DeadLetterCount, ("count", "missing"), "place", "reason")
        return [{"place": place, "reason": reason, **counts} for (place, reason), counts in found]

    @property
    def items(self) -> dict[str, int]:
        """Refused items without a record: `lost`, `pending` and `unrecorded`."""
        missing, pending, unrecorded = (
            self._total(DeadLetterCount, measure) for measure in ("missing", "pending", "unrecorded")
        )
        return {"lost": missing - pending - unrecorded, "pending": pending, "unrecorded": unrecorded}

    @property
    def quarantine(self) -> Rows:
        """Count the bad rows by `archive` and `reason`, with one `archive_file` to look at."""
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
        return self._total(RouteCount, "cloud_events")

    @property
    def to_replay(self) -> int:
        """Rows of the replay."""
        return self._total(RouteCount, "to_replay")

    def _sums(
        self, kind: type[MeasuredT], measures: Collection[str], *names: str
    ) -> Iterator[tuple[tuple[Any, ...], dict[str, int]]]:
        """Yield the sums by measure for the values of the members `names`, in their order."""
        found: dict[tuple[Any, ...], dict[str, int]] = defaultdict(lambda: dict.fromkeys(measures, 0))
        for key, count in self._of(kind):
            if key.measure in measures:
                found[tuple(getattr(key, name) for name in names)][key.measure] += count
        yield from sorted(found.items(), key=lambda each: [value or "" for value in each[0]])

    def _total(self, kind: type[MeasuredT], measure: str) -> int:
        return sum(count for key, count in self._of(kind) if key.measure == measure)

    def _of(self, kind: type[CountT]) -> Iterator[tuple[CountT, int]]:
        counts: Counter[CountKey] = self.judged.judgement.counts
        return ((key, count) for key, count in counts.items() if isinstance(key, kind))
