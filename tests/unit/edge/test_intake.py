from __future__ import annotations

from edge.intake import Intake
from eventplane.delivery import Refusal
from eventplane.envelope import parse_event
from tests.unit.edge.fakes import ALARM, CHORE, DEAD_LETTER, START, contract, event


def test_the_rank_is_the_types_and_else_the_channels() -> None:
    plane = contract()
    intake = Intake(plane, "thing", "epoch", lambda: START)
    channel = plane.channel("sensor.outbox")
    ranks = []
    for type_ in (ALARM, "org.eventplane.reading.v1", CHORE):
        verdict = intake.accept(event(type_, type_).json.encode(), channel, 1)
        assert verdict.arrival is not None
        ranks.append(verdict.arrival.rank)
    assert ranks == [0, 1, 2]


def test_a_contract_that_routes_no_dead_letters_does_not_make_them_vanish() -> None:
    plane = contract(uplink_prefix="org.eventplane.reading.")
    intake = Intake(plane, "thing", "epoch", lambda: START)
    verdict = intake.accept(b"garbage", plane.channel("sensor.outbox"), 7)
    assert verdict.refused == "not_json"
    assert verdict.arrival is not None
    assert dict(verdict.arrival.destinations) == {"device.outbox": None}
    assert parse_event(verdict.arrival.json).type == DEAD_LETTER


def test_one_event_refused_at_two_places_is_two_dead_letters() -> None:
    plane = contract()
    intake = Intake(plane, "thing", "epoch", lambda: START)
    channel = plane.channel("sensor.outbox")
    places = ("sensor.outbox", "call.inbox", "call.inbox")
    verdicts = [intake.refuse(b"x", place, channel, Refusal("no", "no"), 1) for place in places]
    assert [each.arrival is not None for each in verdicts] == [True, True, False]
    assert [each.refused for each in verdicts] == ["no"] * 3
