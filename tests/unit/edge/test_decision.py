from __future__ import annotations

import pytest

from edge.decision import Decider, Decision, SequenceNumber
from edge.delivery_queues import VolatileEvent
from edge.interest import Interest
from edge.numbering import RecentKeys
from eventplane.contract import Contract, compile_contract, contract_document
from eventplane.dead_letter import Refusal
from eventplane.device_reports import key_digest
from eventplane.envelope import Envelope, parse_event
from tests.unit.edge.fakes import ALARM, CHORE, DEAD_LETTER, START, contract, event, ordered

TWO_SECONDS = {"time": "2001-01-01T00:00:00Z", "expirytime": "2001-01-01T00:00:02Z"}
SLOT = SequenceNumber(1, uptime_ms=50_000)
READING = "org.eventplane.reading.v1"


def accept(plane: Contract, offered: Envelope | bytes) -> Decision:
    """What becomes of a message of the sensor's outbox."""
    payload = offered if isinstance(offered, bytes) else offered.json.encode()
    return made(plane).accept(payload, plane.channel("sensor.outbox"), SLOT)


def stored(decision: Decision) -> dict[str, int | None]:
    """The destinations that it is stored for, each with its expiry."""
    return dict(decision.arrival.destinations) if decision.arrival else {}


def made(plane: Contract, recent: RecentKeys | None = None) -> Decider:
    return Decider(plane, "thing", "epoch", lambda: START, recent or RecentKeys(10), Interest())


def test_the_rank_is_the_types_and_else_the_channels() -> None:
    plane = contract()
    decisions = [accept(plane, event(type_, type_)) for type_ in (ALARM, READING, CHORE)]
    assert [each.arrival.rank for each in decisions if each.arrival] == [0, 1, 2]


def test_a_contract_that_routes_no_dead_letters_does_not_make_them_vanish() -> None:
    plane = contract(uplink_prefix="org.eventplane.reading.")
    verdict = accept(plane, b"garbage")
    assert verdict.refused == "not_json"
    assert stored(verdict) == {"device.outbox": None}
    assert parse_event(verdict.arrival.json).type == DEAD_LETTER


def test_one_event_refused_at_two_places_is_two_dead_letters() -> None:
    plane = contract()
    recent = RecentKeys(10)
    intake = made(plane, recent)
    channel = plane.channel("sensor.outbox")
    places = ("sensor.outbox", "call.inbox", "call.inbox")
    verdicts = []
    for place in places:
        verdicts.append(intake.refuse(b"x", place, channel, Refusal("no", "no"), SLOT))
        recent.add(verdicts[-1].key or b"")
    assert [each.arrival is not None for each in verdicts] == [True, True, False]
    assert [each.refused for each in verdicts] == ["no"] * 3


@pytest.mark.parametrize(
    ("outbox", "uplink", "attributes", "expected"),
    [
        ({}, {}, {}, None),
        ({"expiry_s": 10}, {}, {}, 60_000),
        ({"expiry_s": 10}, {"expiry_s": 3}, {}, 53_000),
        ({"expiry_s": 10}, {}, TWO_SECONDS, 52_000),
        ({"expiry_s": 1}, {}, TWO_SECONDS, 51_000),
    ],
)
def test_a_delivery_expires_by_the_strictest_word(
    outbox: dict[str, object], uplink: dict[str, object], attributes: dict[str, str], expected: int | None
) -> None:
    plane = contract(sensor={"outbox": outbox}, **uplink)
    verdict = accept(plane, event("e", **attributes))
    assert stored(verdict) == {"device.outbox": expected}


def test_a_dead_letter_does_not_inherit_the_expiry_of_its_channel() -> None:
    plane = contract(sensor={"outbox": {"expiry_s": 10}})
    verdict = accept(plane, b"garbage")
    assert stored(verdict) == {"device.outbox": None}


def test_a_best_effort_outbox_gives_no_number() -> None:
    plane = contract(sensor={"outbox": {"delivery_guarantee": "best_effort"}})
    offered = event("e", READING, subject="show")
    sent = offered.stamped(senderservice="sensor")
    verdict = accept(plane, offered)
    assert verdict.arrival is None
    assert verdict.volatile == (
        VolatileEvent("display.inbox", READING, sent.json, key_digest(sent.key)),
        VolatileEvent("device.outbox", READING, sent.json, key_digest(sent.key)),
    )


@pytest.mark.source("P4")
def test_a_best_effort_destination_takes_nothing_from_the_others() -> None:
    plane = contract(display={"inbox": {"delivery_guarantee": "best_effort"}})
    offered = event("e", READING, subject="show")
    sent = offered.stamped(senderservice="sensor")
    verdict = accept(plane, offered)
    assert stored(verdict) == {"device.outbox": None}
    assert verdict.volatile == (VolatileEvent("display.inbox", READING, sent.json, key_digest(sent.key)),)


@pytest.mark.source("P4", "C1")
def test_an_event_that_asks_for_less_is_stored_nowhere() -> None:
    plane = contract()
    verdict = accept(plane, event("e", READING, subject="show", deliveryguarantee="best_effort"))
    assert verdict.arrival is None
    assert [each.destination for each in verdict.volatile] == ["display.inbox", "device.outbox"]


@pytest.mark.source("P4", "C1")
@pytest.mark.parametrize(
    ("route", "event_type", "kept"),
    [
        (None, None, ["display.inbox", "device.outbox"]),
        ("best_effort", None, ["device.outbox"]),
        (None, "best_effort", []),
        ("at_least_once", "best_effort", ["display.inbox"]),
    ],
)
def test_the_guarantee_of_a_route_goes_before_that_of_the_type(
    route: str | None, event_type: str | None, kept: list[str]
) -> None:
    document = contract_document(contract())
    document["routes"]["shows"]["delivery_guarantee"] = route
    document["event_types"][READING] = {"description": "d", "delivery_guarantee": event_type}
    plane = compile_contract(document, "guarantees")
    verdict = accept(plane, event("e", READING, subject="show"))
    assert sorted(stored(verdict), reverse=True) == kept
    assert len(kept) + len(verdict.volatile) == 2


@pytest.mark.source("P4")
def test_two_routes_to_one_channel_are_one_delivery_with_the_stronger_guarantee() -> None:
    document = contract_document(contract())
    again = document["routes"]["shows"] | {"delivery_guarantee": "best_effort"}
    document["routes"]["also-shows"] = again
    plane = compile_contract(document, "guarantees")
    verdict = accept(plane, event("e", READING, subject="show"))
    assert sorted(stored(verdict)) == ["device.outbox", "display.inbox"]
    assert verdict.volatile == ()


def test_what_is_no_event_is_a_dead_letter_also_where_nothing_is_promised() -> None:
    plane = contract(sensor={"outbox": {"delivery_guarantee": "best_effort"}})
    forged = event("e", deviceepoch="mine").json.encode()
    verdict = made(plane).accept(forged, plane.channel("sensor.outbox"), SLOT)
    assert verdict.refused == "reserved_attribute"
    assert verdict.arrival is not None


@pytest.mark.source("P17")
def test_what_goes_up_to_an_ordered_inbox_is_numbered_for_it() -> None:
    plane = ordered()
    channel = plane.channel("sensor.outbox")
    counted: dict[str, int] = {}
    found = []
    for id, type_ in enumerate((READING, ALARM, READING, CHORE)):
        verdict = made(plane).accept(
            event(str(id), type_).json.encode(), channel, SequenceNumber(id + 1, 0, counted)
        )
        assert verdict.arrival is not None
        counted.update(verdict.arrival.positions)
        found.append(parse_event(verdict.arrival.json).attributes.get("orderin"))
    rule = str(found[0]).split("/")[2]
    assert found == [
        f"cloud/normal/{rule}/1",
        f"cloud/urgent/{rule}/1",
        f"cloud/normal/{rule}/2",
        f"cloud/low/{rule}/1",
    ]


@pytest.mark.source("P17")
def test_nobody_numbers_for_the_device() -> None:
    plane = contract()
    forged = event("1", READING, orderin="cloud/normal/0123abcd/1")
    verdict = accept(plane, forged)
    assert verdict.refused == "reserved_attribute"
