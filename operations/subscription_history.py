"""Which subscription was in force when, by the ledger: each line names the contract that decided it.

The archive has every contract that a router decided by, also those with subscriptions. What is in force while
no event comes leaves no line: such a time shows as the gap between two.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from eventplane.contract import Route, load_compiled
from eventplane.contract.subscription import subscribed_routes
from eventplane.filters import to_document
from eventplane.ledger import LEDGER
from operations.archive import Days, Record, json_object


@dataclass(frozen=True, slots=True)
class InForce:
    """A subscription's route as one version of the contract had it, from the first decision to the last.

    Times in Unix milliseconds; `delivered` counts the deliveries by it.
    """

    route: Route
    contract_version: str
    first_ms: int
    last_ms: int
    delivered: int

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "route": self.route.name,
            "to": self.route.destination,
            "filter": to_document(self.route.filter),
            "contract_version": self.contract_version,
            "first_ms": self.first_ms,
            "last_ms": self.last_ms,
            "delivered": self.delivered,
        }


@dataclass(slots=True)
class _Decisions:
    """What was decided by one contract."""

    first_ms: int
    last_ms: int
    delivered: dict[str, int]


def history(days: Days) -> tuple[list[InForce], list[str]]:
    """What was in force on `days`, by time and route; and the versions that the archive does not have."""
    decisions: dict[str, _Decisions] = {}
    for record in days.records(LEDGER, json_object):
        _count(decisions, record)
    found: list[InForce] = []
    missing: list[str] = []
    for version, decided in decisions.items():
        compiled = days.contract(version)
        if compiled is None:
            missing.append(version)
        else:
            found += _routes(version, compiled, decided)
    return sorted(found, key=lambda each: (each.route.name, each.first_ms)), sorted(missing)


def _count(decisions: dict[str, _Decisions], record: Record) -> None:
    at_ms = record["decided_at_ms"]
    decided = decisions.setdefault(record["contract_version"], _Decisions(at_ms, at_ms, {}))
    decided.first_ms, decided.last_ms = min(decided.first_ms, at_ms), max(decided.last_ms, at_ms)
    if record["outcome"] == "delivered" and record["route"]:
        decided.delivered[record["route"]] = decided.delivered.get(record["route"], 0) + 1


def _routes(version: str, compiled: bytes, decided: _Decisions) -> Iterator[InForce]:
    for route in subscribed_routes(load_compiled(compiled, version)):
        delivered = decided.delivered.get(route.name, 0)
        yield InForce(route, version, decided.first_ms, decided.last_ms, delivered)


def filter_text(route: Route) -> str:
    """The filter on one line."""
    return json.dumps(to_document(route.filter), ensure_ascii=False)
