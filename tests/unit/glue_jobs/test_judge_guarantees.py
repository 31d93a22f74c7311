"""What a router may have dropped at best effort: the audit believes it of those deliveries only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from eventplane.contract import Contract, Place, compile_contract
from eventplane.device_reports import HEARTBEAT
from eventplane.envelope import Envelope
from eventplane.guarantee import DROP_REASONS, FAILED, NOT_REPEATED, is_promised
from eventplane.reasons import Outcome
from tests.spark.small_archive import SmallArchive
from tests.unit.glue_jobs.judging import judged

pytestmark = pytest.mark.source("P4", "C1")

DECLARED = {"silent": None, "sure": "at_least_once", "lively": "best_effort"}
INBOXES = {"desk": "at_least_once", "wall": "best_effort"}


def every_declaration(outbox: str) -> Contract:
    """All that routes, types and inboxes can declare, behind one outbox of the device."""
    return compile_contract(
        {
            "format": 7,
            "name": "every",
            "participants": {
                "device": {
                    "kind": "device",
                    "description": "d",
                    "outbox": {"delivery_guarantee": outbox},
                },
                **{
                    name: {"kind": "cloud_service", "description": "d", "inbox": {"delivery_guarantee": each}}
                    for name, each in INBOXES.items()
                },
            },
            "event_types": {
                f"org.example.{name}": {"description": "d", "delivery_guarantee": each}
                for name, each in DECLARED.items()
            },
            "routes": {
                f"{name}-to-{inbox}": {
                    "filter": {"prefix": {"type": "org."}},
                    "to": f"{inbox}.inbox",
                    "delivery_guarantee": each,
                }
                for name, each in DECLARED.items()
                for inbox, guarantee in INBOXES.items()
                if (each, guarantee) != ("at_least_once", "best_effort")  # the compiler refuses it
            },
        },
        "every",
    )


def events(archive: SmallArchive) -> Iterator[Envelope]:
    types = [*(f"org.example.{each}" for each in DECLARED), "org.other", HEARTBEAT]
    for type_, asks in product(types, (False, True)):
        source: dict[str, Any] = {"source": "/devices/home-1/forwarder"} if type_ == HEARTBEAT else {}
        yield archive.event(type_, **source, **({"deliveryguarantee": "best_effort"} if asks else {}))


@pytest.mark.parametrize("outbox", ["at_least_once", "best_effort"])
def test_the_audit_believes_a_drop_of_exactly_what_the_rule_has_at_best_effort(
    archive: SmallArchive, outbox: str
) -> None:
    contract = archive.contract = every_declaration(outbox)
    archive.contracts = [contract]
    dropped: dict[str, int] = dict.fromkeys((each.name for each in contract.routes_at(Place.CLOUD)), 0)
    lost = dict(dropped)
    for number, event in enumerate(events(archive)):
        archive.accept(event)
        for at, row in enumerate(archive.route(event), start=-len(dropped)):
            reason = DROP_REASONS[number % 2]
            archive.ledger[at] = replace(row, outcome=Outcome.DROPPED, reason=reason)
        for route in contract.routes_at(Place.CLOUD):
            is_kept = is_promised(contract, event, contract.device.outbox, route)
            (lost if is_kept else dropped)[route.name] += 1
    report = judged(archive)
    found = {name: report.route(name) for name in dropped}
    assert {name: each["dropped"] for name, each in found.items()} == dropped
    assert {name: each["lost"] for name, each in found.items()} == lost
    assert min(sum(lost.values()), sum(dropped.values())) > 0


def test_what_was_delivered_and_then_not_repeated_is_delivered(archive: SmallArchive) -> None:
    archive.contract = every_declaration("at_least_once")
    archive.contracts = [archive.contract]
    event = archive.send("org.example.lively")
    again = [each for each in archive.ledger if each.route != "sure-to-desk"]
    archive.ledger += [
        replace(each, attempt=2, outcome=Outcome.DROPPED, reason=NOT_REPEATED) for each in again
    ]
    assert event
    report = judged(archive)
    assert report.faults() == {}
    assert report.route("silent-to-desk")["delivered"] == 1


def test_a_delivery_at_best_effort_without_any_record_is_lost_all_the_same(archive: SmallArchive) -> None:
    archive.contract = every_declaration("best_effort")
    archive.contracts = [archive.contract]
    archive.send("org.example.silent")
    archive.ledger.pop()
    assert judged(archive).faults() == {"lost": 1}


def test_a_drop_for_a_reason_of_best_effort_is_explained_in_the_evidence(archive: SmallArchive) -> None:
    archive.contract = every_declaration("best_effort")
    archive.contracts = [archive.contract]
    archive.send("org.example.silent")
    archive.ledger[-1] = replace(archive.ledger[-1], outcome=Outcome.DROPPED, reason=FAILED)
    report = judged(archive)
    (found,) = report.findings
    assert (found.kind, found.hop, found.detail) == ("dropped", "router", FAILED)
