"""All devices judged together. That Spark brings together the same is tests/spark/test_audit_damage.py."""

from __future__ import annotations

from collections.abc import Collection
from random import Random
from typing import Any

import pytest

from eventplane.names import EPOCH, SEQUENCE
from glue_jobs.delivery_audit.completeness import Scope
from glue_jobs.delivery_audit.devices import Fleet, Listed, judge_fleet
from glue_jobs.delivery_audit.event_group import HOUR_MS, NotInTap
from lab.benchmarks.audit.hostile import hostile_reports
from tests.unit.glue_jobs.home import DAY_END_MS, NOON_MS, SCOPE, SIREN, Event, Home, devices_of

NOBODY = NotInTap(
    "ghost", "ghost/voice", "//ghost", "e", "t", "doors", "doors.inbox", "v1", NOON_MS, "ledger/1"
)


def fleet_of(
    homes: Collection[Home],
    scope: Scope,
    *,
    strays: Collection[NotInTap] = (),
    registry: Listed | None = None,
    absent: Collection[int] = (),
) -> tuple[Fleet, Any]:
    """Return what is known of all devices of some homes."""
    return judge_fleet(devices_of(homes, strays, registry), scope, absent=absent)


def test_devices_are_judged_as_a_fleet() -> None:
    first, second, third = Home("home-1"), Home("home-2", "e2"), Home("home-3", "e3")
    first.started()
    while first.at_ms < DAY_END_MS:
        first.live("send 2, manifest, wait 1")
    second.live("start, send 3, send 1 under=home-1, manifest, lose 1, manifest")
    third.simple(2)
    # The store of the fourth goes on under the client id of the fifth.
    moved = Home("home-4", "e4").live("start, send 2, manifest, wait 1, send 3")
    moved.client_id = "home-5"
    moved.live("manifest, wait 1, send 1, manifest")
    # It claims the epochs of others, one of them beside two owners.
    liar = Home("home-6", "e4").live("send 1, manifest, wait 1")
    liar.begin("e1")
    liar.number = 10**6
    liar.live("send 2, manifest")
    registry = [(name, "provisioned", 0) for name in ("home-1", "home-2", "home-9")]
    gone = frozenset({NOON_MS // HOUR_MS + 5})
    scope = Scope(SCOPE.uplinks, SCOPE.watermark_ms, end_ms=DAY_END_MS, gone=gone, has_fleet=True)
    homes = first, second, third, moved, liar
    fleet, _ = fleet_of(homes, scope, strays=[NOBODY], registry=registry)
    assert fleet.standings == {"attested": 1, "partly": 1, "silent": 1, "unregistered": 4, "expected": 3}
    assert [(each.kind, each.device) for each in sorted(fleet.findings, key=lambda each: each.kind)] == [
        ("contradiction", None),
        ("contradiction", None),
        ("epoch_change", "home-6"),
        ("foreign_epoch", "home-1"),
        ("forged", "ghost"),
        ("lost", "home-2"),
    ]
    coverage = fleet.coverage("fleet/1", 7)
    assert coverage.events == {"manifest": 59, "numbering": 0, "tap": 2, "nothing": 0}
    assert coverage.share == pytest.approx(59 / 61)


def test_an_hour_that_most_devices_miss_is_a_hole() -> None:
    """The review: tap, ledger and handovers of an hour gone: 5 of 250 are called lost by the devices."""
    homes = [Home(f"home-{number}", f"e{number}") for number in range(3)]
    for home in homes:
        home.started()
        for hour in range(6):
            home.send(2, tap=hour != 3)
            home.manifest(tap=hour != 3)
            home.wait(1)
    absent, scope = [NOON_MS // HOUR_MS + 3], Scope(SCOPE.uplinks, SCOPE.watermark_ms)
    fleet, _ = fleet_of(homes, scope, absent=absent)
    assert (fleet.findings, fleet.holes) == ([], {absent[0]: 9})
    # One device alone may have lost it.
    alone, _ = fleet_of(homes[:1], scope, absent=absent)
    assert "lost" in {each.kind for each in alone.findings}


def test_hostile_reports_change_nothing_for_others() -> None:
    """The review: one report of one device ends the audit of all. `make audit-hostile` is the large."""
    homes = [Home(f"home-{number}", f"e{number}") for number in range(5)]
    for home in homes:
        home.live("start, send 3, lose 1, manifest, wait 1, send 2, expire 3, manifest, wait 1")
    clients = [home.client_id for home in homes[:2]]
    scope = Scope(SCOPE.uplinks, SCOPE.watermark_ms, {SIREN: True}, end_ms=DAY_END_MS)
    before = _of_others(*fleet_of(homes, scope), clients)
    epochs = {home.client_id: home.epoch for home in homes}
    for client, report in hostile_reports(clients, epochs, 200, Random(1)):
        home = homes[clients.index(client)]
        number = int(str(report.attributes[SEQUENCE]))
        epoch, at_ms = str(report.attributes[EPOCH]), NOON_MS + HOUR_MS
        named = at_ms, "tap/1", report.type, report.source, report.id, epoch, number, report.json
        key = "device", report.source, report.id
        home.events.append(Event(client, epoch, at_ms, number, key, named))
    assert before
    assert _of_others(*fleet_of(homes, scope), clients) == before


def _of_others(fleet: Fleet, found: Any, clients: list[str]) -> list[str]:
    """Return what is said of the devices that are none of `clients`."""
    told = [str([str(value) for value in each]) for kind in ("finding", "day") for each in found[kind]]
    told += [str(tuple(each.items())) for each in [*fleet.worst, *fleet.hours]]
    return sorted(text for text in told if not any(f"'{each}'" in text for each in clients))
