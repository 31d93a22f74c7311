"""What the window's deliveries come to, by route, inbox, webhook, dead letter and bad row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Row

from eventplane.contract import Place
from glue_jobs.delivery_audit.route_filters import NO_ROUTE
from glue_jobs.delivery_audit.verdicts import EXPECTED, Verdict

Rows = list[dict[str, Any]]

ROUTE_COUNTS = ("expected", *map(str, Verdict), "duplicated", "replayed", "events", "tap_copies")
CONSUMER_VERDICTS = (
    Verdict.DELIVERED,
    Verdict.DEAD_LETTERED,
    Verdict.PENDING,
    Verdict.LOST,
    Verdict.EXPIRED,
    Verdict.DROPPED,
)


@dataclass(frozen=True, slots=True)
class Figures:
    """What the window's deliveries come to.

    `groups` are rows of counts, which the properties sum.
    """

    groups: list[Row]

    @property
    def extent(self) -> dict[str, Any]:
        """How many rows were read (bad ones included), and when the first and the last were accepted."""
        first = [each["first_accepted_ms"] for each in self.groups if each["first_accepted_ms"] is not None]
        last = [each["last_accepted_ms"] for each in self.groups if each["last_accepted_ms"] is not None]
        return {
            "tap_rows": self.sum("tap_rows"),
            "first_accepted_ms": min(first, default=None),
            "last_accepted_ms": max(last, default=None),
            "ledger_rows": self.sum("ledger_rows"),
        }

    @property
    def first_uses(self) -> dict[str, int]:
        """When the routers first decided by each contract version that the ledger has, Unix milliseconds."""
        uses: dict[str, int] = {}
        for each in self.groups:
            version, at_ms = each["contract_version"], each["first_decided_ms"]
            if version is not None and at_ms is not None:
                uses[version] = min(at_ms, uses.get(version, at_ms))
        return uses

    @property
    def routes(self) -> Rows:
        """One row for each `date` and `route`, the unrouted as a route called `NO_ROUTE`.

        A column for each verdict counts events; `expected` is the sum of the `EXPECTED` ones (nothing is
        expected of no route). `duplicated` counts the copies in inboxes beyond the first. `events` and
        `tap_copies` count each event on one of its routes only, so that they can be summed.
        """
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for each in self._of("route"):
            key = each["date"], each["route"]
            row = found.setdefault(
                key, {"date": key[0], "route": key[1], "destination": None, **dict.fromkeys(ROUTE_COUNTS, 0)}
            )
            row["destination"] = max(filter(None, (row["destination"], each["destination"])), default=None)
            row[each["verdict"]] += each["rows"]
            if each["verdict"] in EXPECTED and each["route"] != NO_ROUTE:
                row["expected"] += each["rows"]
            for name in ("duplicated", "replayed", "events", "tap_copies"):
                row[name] += each[name]
        return [found[key] for key in sorted(found)]

    @property
    def by_destination(self) -> dict[str, dict[str, int]]:
        """What was written to each inbox, by the ledger alone: what its consumer must have received.

        `delivered_unique` counts events, `delivered_total` messages. `may_expire` counts the events with an
        `expirytime` in an inbox without handovers: nobody records whether its reader came in time.
        """
        counts = ("delivered_unique", "delivered_total", "may_expire")
        found: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(counts, 0))
        for each in self._of("destination"):
            if each["delivered_total"]:
                for name in counts:
                    found[each["destination"]][name] += each[name]
        return {name: found[name] for name in sorted(found)}

    @property
    def consumers(self) -> Rows:
        """The figures of each webhook by `date` and `channel`."""
        found: dict[tuple[str, str], dict[str, Any]] = {}
        counts = ("expected", *map(str, CONSUMER_VERDICTS), "duplicated")
        for each in self._of("end"):
            key = each["date"], each["destination"]
            row = found.setdefault(key, {"date": key[0], "channel": key[1], **dict.fromkeys(counts, 0)})
            row["expected"] += each["rows"]
            row[each["end"]] += each["rows"]
            row["duplicated"] += each["handed_over_again"]
        return [found[key] for key in sorted(found)]

    @property
    def dead_letters(self) -> Rows:
        """How many dead letters there are, by `place` of their making and `reason`.

        `missing` counts the items that the cloud refused and did not record.
        """
        counts: dict[tuple[str, str | None], list[int]] = defaultdict(lambda: [0, 0])
        for each in self.groups:
            if each["device_letter"] is not None:
                counts[str(Place.DEVICE), each["device_letter"] or None][0] += each["rows"]
            for reason in each["letters"] or ():
                counts[str(Place.CLOUD), reason or None][0] += each["rows"]
            if each["item"] is not None:
                counts[str(Place.CLOUD), each["item"] or None][0] += each["recorded"]
                counts[str(Place.CLOUD), each["item"] or None][1] += each["missing"]
        return [
            {"place": key[0], "reason": key[1], "count": counts[key][0], "missing": counts[key][1]}
            for key in sorted(counts, key=lambda key: (key[0], key[1] or ""))
        ]

    @property
    def quarantine(self) -> Rows:
        """How many bad rows by `archive` and `reason`, with one `archive_file` to look at."""
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for each in self._of("bad_archive"):
            key = each["bad_archive"], each["bad_reason"]
            row = found.setdefault(
                key, {"archive": key[0], "reason": key[1], "rows": 0, "archive_file": each["bad_file"]}
            )
            row["rows"] += each["rows"]
            row["archive_file"] = min(row["archive_file"], each["bad_file"])
        return [found[key] for key in sorted(found)]

    def sum(self, name: str) -> int:
        """The sum over all."""
        return sum(each[name] for each in self.groups)

    def _of(self, key: str) -> Iterable[Row]:
        return (each for each in self.groups if each[key] is not None)
