"""Best effort in the cloud: tried once, after what is promised, and never a reason to come again."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from eventplane.batch import pack
from eventplane.contract import Contract, Place, compile_contract
from eventplane.guarantee import FAILED, NOT_REPEATED
from eventplane.router import Router
from lambdas.common.queue import read_messages
from lambdas.router.service import LIMITS
from tests.unit.lambdas.support import (
    ALARM,
    READING,
    Cloud,
    Run,
    Unwilling,
    event,
    frame,
    message,
    sqs_event,
    stamped,
)

pytestmark = pytest.mark.source("P4", "C1")

BEST_EFFORT = "best_effort"
FAMILY = "family-app.inbox"
CENTRE = "alarm-centre.inbox"


def route_to(contract: Contract, destination: str) -> str:
    """The name of the route by which alarms come to `destination`."""
    routes = Router(contract, Place.CLOUD).route(event("any", ALARM))
    (name,) = [each.name for each in routes if each.destination == destination]
    return name


@pytest.fixture
def plane(contract: Contract) -> Contract:
    """The contract in which alarms reach the family's app at best effort."""
    document = json.loads(contract.canonical)
    document["routes"][route_to(contract, FAMILY)]["delivery_guarantee"] = BEST_EFFORT
    return compile_contract(document, "test")


def written(cloud: Cloud) -> list[tuple[str, str, str, str | None, int]]:
    """Event, destination, outcome, reason and attempt of each line of the ledger."""
    names = ("id", "destination", "outcome", "reason", "attempt")
    return sorted(tuple(line[name] for name in names) for line in cloud.decisions())


def failing(cloud: Cloud, *addresses: str, code: str = "Throttling") -> Any:
    urls = {cloud.queues[each] for each in addresses}
    return Unwilling(cloud.sqs, "send_message_batch", queue_urls=urls, code=code)


def test_a_best_effort_delivery_that_succeeds_is_like_any_other(
    cloud: Cloud, run: Run, plane: Contract
) -> None:
    assert run(message("m1", frame(event("1", ALARM).json.encode())), plane=plane) == frozenset()
    assert [each["Body"] for each in cloud.received(FAMILY)] == [stamped(event("1", ALARM)).json]
    assert written(cloud) == [("1", CENTRE, "delivered", None, 1), ("1", FAMILY, "delivered", None, 1)]


def test_a_message_tells_the_webhook_behind_it_what_is_at_best_effort(
    cloud: Cloud, run: Run, plane: Contract
) -> None:
    run(message("m1", frame(event("1", ALARM).json.encode())), plane=plane)
    told = {}
    for address in (FAMILY, CENTRE):
        (received,) = cloud.received(address)
        record = sqs_event(message("m1", received["Body"]))["Records"][0]
        record["messageAttributes"] = {
            name: {"stringValue": each["StringValue"]} for name, each in received["MessageAttributes"].items()
        }
        (read,) = read_messages({"Records": [record]})
        told[address] = (read.is_best_effort, read.route)
    assert told == {FAMILY: (True, route_to(plane, FAMILY)), CENTRE: (False, route_to(plane, CENTRE))}


@pytest.mark.parametrize("code", ["Throttling", "InvalidMessageContents"])
def test_a_best_effort_delivery_that_fails_is_dropped_and_its_message_is_done(
    cloud: Cloud, run: Run, plane: Contract, code: str
) -> None:
    sent = message("m1", frame(event("1", ALARM).json.encode()))
    assert run(sent, plane=plane, sqs=failing(cloud, FAMILY, code=code)) == frozenset()
    assert len(cloud.received(CENTRE)) == 1
    assert cloud.received("operations.inbox") == []  # nor is it a dead letter
    assert written(cloud) == [("1", CENTRE, "delivered", None, 1), ("1", FAMILY, "dropped", FAILED, 1)]


def test_when_a_message_comes_again_its_best_effort_deliveries_are_not_repeated(
    cloud: Cloud, run: Run, plane: Contract
) -> None:
    body = frame(event("1", ALARM).json.encode())
    assert run(message("m1", body), plane=plane, sqs=failing(cloud, CENTRE)) == {"m1"}
    again = message("m1", body, attempt=2)
    assert run(again, plane=plane, invocation_id="invocation-2") == frozenset()
    assert (len(cloud.received(CENTRE)), len(cloud.received(FAMILY))) == (1, 1)
    assert written(cloud) == [
        ("1", CENTRE, "delivered", None, 2),
        ("1", FAMILY, "delivered", None, 1),
        ("1", FAMILY, "dropped", NOT_REPEATED, 2),
    ]


def test_a_message_that_fails_again_says_once_for_all_what_was_dropped(
    cloud: Cloud, run: Run, plane: Contract
) -> None:
    body = frame(event("1", ALARM).json.encode())
    assert run(message("m1", body), plane=plane, sqs=failing(cloud, CENTRE, FAMILY)) == {"m1"}
    for attempt in (2, 3):
        again = message("m1", body, attempt=attempt)
        sqs = failing(cloud, CENTRE) if attempt == 2 else cloud.sqs
        run(again, plane=plane, sqs=sqs, invocation_id=f"invocation-{attempt}")
    assert cloud.received(FAMILY) == []
    assert written(cloud) == [
        ("1", CENTRE, "delivered", None, 3),
        ("1", FAMILY, "dropped", FAILED, 1),
        ("1", FAMILY, "dropped", NOT_REPEATED, 3),
    ]


def test_what_is_promised_goes_first_whatever_is_more_urgent(
    cloud: Cloud, run: Run, contract: Contract
) -> None:
    document = json.loads(contract.canonical)
    document["event_types"][ALARM]["delivery_guarantee"] = BEST_EFFORT
    left = iter([LIMITS.planning_ms, LIMITS.reserve_ms])
    both = message("m1", frame(pack([event("1", ALARM), event("2", READING)])))
    failed = run(both, plane=compile_contract(document, "test"), remaining_ms=lambda: next(left, 0))
    assert failed == frozenset()
    assert written(cloud) == [
        ("1", CENTRE, "dropped", FAILED, 1),
        ("1", FAMILY, "dropped", FAILED, 1),
        ("2", "care-analytics.inbox", "delivered", None, 1),
    ]


def test_in_a_fifo_queue_what_is_promised_of_a_later_message_goes_first_too(
    cloud: Cloud, run: Run, contract: Contract
) -> None:
    document = json.loads(contract.canonical)
    document["event_types"][ALARM]["delivery_guarantee"] = BEST_EFFORT
    document["participants"]["family-app"]["sends"] += [ALARM, READING]
    left = iter([LIMITS.planning_ms, LIMITS.planning_ms, LIMITS.reserve_ms])
    group = [
        replace(message(id, event(id, type).json), group="a") for id, type in (("1", ALARM), ("2", READING))
    ]
    plane = compile_contract(document, "test")
    assert run(*group, source="family-app.outbox", plane=plane, remaining_ms=lambda: next(left, 0)) == set()
    assert written(cloud) == [
        ("1", CENTRE, "dropped", FAILED, 1),
        ("1", FAMILY, "dropped", FAILED, 1),
        ("2", "care-analytics.inbox", "delivered", None, 1),
    ]


@pytest.mark.parametrize("at", ["event", "type", "inbox", "outbox"])
def test_each_who_may_ask_for_best_effort_gets_it(
    cloud: Cloud, run: Run, contract: Contract, at: str
) -> None:
    document = json.loads(contract.canonical)
    asked = {"deliveryguarantee": BEST_EFFORT} if at == "event" else {}
    if at == "type":
        document["event_types"][READING]["delivery_guarantee"] = BEST_EFFORT
    if at == "inbox":
        document["participants"]["care-analytics"]["inbox"]["delivery_guarantee"] = BEST_EFFORT
    if at == "outbox":
        document["participants"]["device"]["outbox"]["delivery_guarantee"] = BEST_EFFORT
    sent = message("m1", frame(event("1", READING, **asked).json.encode()))
    plane = compile_contract(document, "test")
    assert run(sent, plane=plane, sqs=failing(cloud, "care-analytics.inbox")) == frozenset()
    assert written(cloud) == [("1", "care-analytics.inbox", "dropped", FAILED, 1)]


def test_a_dead_letter_is_promised_also_of_what_came_at_best_effort(
    cloud: Cloud, run: Run, contract: Contract
) -> None:
    document = json.loads(contract.canonical)
    document["participants"]["device"]["outbox"]["delivery_guarantee"] = BEST_EFFORT
    plane = compile_contract(document, "test")
    sent = message("m1", frame(b"no event"))
    assert run(sent, plane=plane, sqs=failing(cloud, "operations.inbox")) == {"m1"}
    again = message("m1", frame(b"no event"), attempt=2)
    assert run(again, plane=plane, invocation_id="invocation-2") == frozenset()
    assert len(cloud.received("operations.inbox")) == 1


def test_an_event_that_asks_for_more_is_a_dead_letter_that_says_what_to_do(cloud: Cloud, run: Run) -> None:
    greedy = event("1", READING).json.replace("{", '{"deliveryguarantee":"at_least_once",', 1)
    assert run(message("m1", frame(greedy.encode()))) == frozenset()
    (letter,) = (json.loads(each["Body"])["data"] for each in cloud.received("operations.inbox"))
    assert letter["reason"] == "attribute_value"
    assert "write `best_effort`, or leave it out" in letter["detail"]
