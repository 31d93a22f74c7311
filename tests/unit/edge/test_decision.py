"""The decision about a message, and the numbers that events get."""

from os import urandom

import pytest

from edge.decision import Decider, Decision, SequenceNumber
from edge.delivery_queues import VolatileEvent
from edge.interest import Interest
from edge.numbering import MOST_URGENT, RecentKeys, why_expired
from edge.spool import Delivery, PendingDelivery
from eventplane.contract import Contract, contract_document
from eventplane.dead_letter import Refusal
from eventplane.device_reports import KEY_BYTES, key_digest
from eventplane.envelope import Envelope, parse_event, write_event
from eventplane.guarantee import BY_CHANNEL, BY_EVENT
from eventplane.limits import MAX_UPLINK_EVENT_BYTES
from eventplane.names import FOLLOWED_CONTRACT
from tests.small_contract import with_changes
from tests.unit.edge.fakes import ALARM, CHORE, DEAD_LETTER, READING, START, contract, event, ordered

TWO_SECONDS = {"time": "2001-01-01T00:00:00Z", "expirytime": "2001-01-01T00:00:02Z"}
SLOT = SequenceNumber(1, uptime_ms=50_000)
BEST_EFFORT = {"delivery_guarantee": "best_effort"}


def accept(plane: Contract, offered: Envelope | bytes) -> Decision:
    """What becomes of a message of the sensor's outbox."""
    payload = offered if isinstance(offered, bytes) else offered.json.encode()
    return made(plane).accept(payload, plane.channel("sensor.outbox"), SLOT)


def stored(decision: Decision) -> dict[str, int | None]:
    """The destinations that it is stored for, each with its expiry."""
    return dict(decision.arrival.destinations) if decision.arrival else {}


def made(plane: Contract, recent: RecentKeys | None = None) -> Decider:
    return Decider(plane, "thing", "epoch", lambda: START, recent or RecentKeys(10), Interest(urandom))


def test_the_rank_is_the_types_and_else_the_channels() -> None:
    plane = contract()
    decisions = [accept(plane, event(type_, type_)) for type_ in (ALARM, READING, CHORE)]
    assert [each.arrival.rank for each in decisions if each.arrival] == [0, 1, 2]


@pytest.mark.parametrize(
    "plane",
    [
        contract(uplink_prefix="org.eventplane.reading."),
        contract(sensor={"outbox": {"expiry_s": 10}}),
        contract(sensor={"outbox": BEST_EFFORT}),
    ],
    ids=["no route takes dead letters", "the channel's events expire", "the channel promises nothing"],
)
def test_a_malformed_message_becomes_a_stored_dead_letter_that_does_not_expire(plane: Contract) -> None:
    decision = accept(plane, b"garbage")
    assert decision.refused == "not_json"
    assert stored(decision) == {"device.outbox": None}
    assert parse_event(decision.arrival.json).type == DEAD_LETTER


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
def test_the_shortest_expiry_applies_to_a_delivery(
    outbox: dict[str, object], uplink: dict[str, object], attributes: dict[str, str], expected: int | None
) -> None:
    plane = contract(sensor={"outbox": outbox}, **uplink)
    verdict = accept(plane, event("e", **attributes))
    assert stored(verdict) == {"device.outbox": expected}


BOTH = ["display.inbox", "device.outbox"]


def shown_twice() -> Contract:
    """The plane with a second route to the display, at best effort."""
    shows = contract_document(contract())["routes"]["shows"]
    return with_changes(contract(), {"routes/also-shows": shows | BEST_EFFORT})


@pytest.mark.source("P4", "C1")
@pytest.mark.parametrize(
    ("plane", "attributes", "kept"),
    [
        (contract(), {}, BOTH),
        (contract(sensor={"outbox": BEST_EFFORT}), {}, []),
        (contract(display={"inbox": BEST_EFFORT}), {}, ["device.outbox"]),
        (contract(), {"deliveryguarantee": "best_effort"}, []),
        (shown_twice(), {}, BOTH),
    ],
    ids=[
        "all at least once",
        "the outbox says best effort",
        "one destination says so",
        "the event says so",
        "of two routes to one channel the stronger counts",
    ],
)
def test_best_effort_is_not_stored(plane: Contract, attributes: dict[str, str], kept: list[str]) -> None:
    offered = event("e", READING, subject="show", **attributes)
    sent = offered.stamped(senderservice="sensor")
    decision = accept(plane, offered)
    assert sorted(stored(decision), reverse=True) == kept
    assert decision.volatile == tuple(
        VolatileEvent(each, READING, sent.json, key_digest(sent.key)) for each in BOTH if each not in kept
    )


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
        counted.update(verdict.arrival.positions)
        found.append(parse_event(verdict.arrival.json).attributes.get("orderin"))
    rule = str(found[0]).split("/")[2]
    assert found == [
        f"cloud/normal/{rule}/1",
        f"cloud/urgent/{rule}/1",
        f"cloud/normal/{rule}/2",
        f"cloud/low/{rule}/1",
    ]


@pytest.mark.parametrize(("plane", "is_sent"), [(contract(), False), (contract(), True)])
def test_an_event_names_the_contract_that_was_sent(plane: Contract, is_sent: bool) -> None:
    recent, interest = RecentKeys(10), Interest(urandom)
    decider = Decider(plane, "thing", "epoch", lambda: START, recent, interest, is_sent=is_sent)
    outbox = plane.channel("sensor.outbox")
    # A service's own word, as of an event that it had from another device, is not what counts.
    payloads = [event("e", devicecontract="forged"), event("v", deliveryguarantee="best_effort")]
    accepted, fleeting = (decider.accept(each.json.encode(), outbox, SLOT) for each in payloads)
    refused = decider.accept(b"garbage", outbox, SLOT)
    texts = [each.arrival.json for each in (accepted, refused) if each.arrival]
    texts += [fleeting.volatile[0].json, decider.own(event("own"), SLOT).json]
    texts.append(decider.volatile(event("own"), 1).json)
    named = [parse_event(each).attributes.get(FOLLOWED_CONTRACT) for each in texts]
    assert named == [plane.version if is_sent else None] * 5


def test_no_event_gets_too_large_by_its_contract() -> None:
    plane = contract()
    decider = Decider(plane, "thing", "epoch", lambda: START, RecentKeys(10), Interest(urandom), is_sent=True)
    bare = len(write_event(event("e").attributes, "").json)
    largest = write_event(event("e").attributes, "x" * (MAX_UPLINK_EVENT_BYTES - bare - 100))
    decision = decider.accept(largest.json.encode(), plane.channel("sensor.outbox"), SLOT)
    assert decision.refused is None
    assert decision.arrival
    assert FOLLOWED_CONTRACT not in parse_event(decision.arrival.json).attributes


def key(number: int) -> bytes:
    return key_digest(("/s", str(number)))


@pytest.mark.source("F-W3")
def test_it_knows_at_least_the_last_keys_and_at_most_twice_as_many() -> None:
    recent = RecentKeys(1_000, map(key, range(2_500)))
    recent.add(key(2_500))
    known = [number for number in range(3_000) if key(number) in recent]
    assert known == list(range(1_000, 2_501))
    for number in range(2_501, 3_001):
        recent.add(key(number))
    assert [number for number in range(3_001) if key(number) in recent] == list(range(2_000, 3_001))


def test_it_knows_the_last_urgent_ones_whatever_follows() -> None:
    recent = RecentKeys(10)
    for number in range(MOST_URGENT + 1):
        recent.add_urgent(key(number))
    for number in range(100):
        recent.add(key(-number))
    assert [key(number) in recent for number in (1, MOST_URGENT)] == [True, True]
    assert len(recent._urgent) == MOST_URGENT


def test_keys_with_a_common_prefix_are_distinguished() -> None:
    alike = [b"\0" * 8 + number.to_bytes(8, "big") for number in range(1, 400)]
    recent = RecentKeys(1_000, alike[:300])
    assert [each in recent for each in alike] == [True] * 300 + [False] * 99


def test_source_and_id_both_count() -> None:
    digests = {key_digest(key) for key in (("/s", "1"), ("/s1", ""), ("/t", "1"))}
    assert len(digests) == 3
    assert {len(each) for each in digests} == {KEY_BYTES}


T0, T5 = "2024-01-01T00:00:00Z", "2024-01-01T00:00:05.250Z"


@pytest.mark.parametrize(
    ("json", "reason"),
    [
        (event("e", time=T0, expirytime=T5).json, BY_EVENT),
        (event("e").json, BY_CHANNEL),
        (event("e", expirytime=T0).json, BY_CHANNEL),
        (event("e", time=T0, expirytime="2024-01-01T00:01:00Z").json, BY_CHANNEL),
        ("not an event", BY_CHANNEL),
    ],
)
def test_the_reason_of_an_expiry_is_the_event_or_the_channel(json: str, reason: str) -> None:
    waiting = PendingDelivery(Delivery("device.outbox", 1, 1), json, expires_ms=1000 + 5250, stored_ms=1000)
    assert why_expired(waiting) == reason
