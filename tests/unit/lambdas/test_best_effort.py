"""Best effort in the cloud: tried once, after promised deliveries, and never redelivered."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from eventplane.batch import pack
from eventplane.contract import Contract
from eventplane.guarantee import FAILED, GUARANTEE_HINT, NOT_REPEATED
from eventplane.sqs_binding import hint_of
from lambdas.common.queue import QueueMessage
from lambdas.router.service import LIMITS
from tests.fakes.faults import FailingClient
from tests.small_contract import with_changes
from tests.unit.lambdas.support import ALARM, READING, Cloud, event, frame, message, with_sends

pytestmark = pytest.mark.source("P4", "C1")

BEST_EFFORT = "best_effort"
FAMILY, CENTRE, CARE = "family-app.inbox", "alarm-centre.inbox", "care-analytics.inbox"
SENT = message("m1", frame(event("1", ALARM)))


def at_best_effort(contract: Contract, *path: str) -> Contract:
    """The contract in which what is at `path` is at best effort."""
    return with_changes(contract, {"/".join((*path, "delivery_guarantee")): BEST_EFFORT})


@pytest.fixture
def plane(contract: Contract) -> Contract:
    """The contract in which alarms reach the family's app at best effort."""
    (route,) = (each.name for each in contract.routes if each.destination == FAMILY and "daily" in each.name)
    return at_best_effort(contract, "routes", route)


@pytest.fixture
def route(cloud: Cloud, plane: Contract) -> Callable[..., frozenset[str]]:
    """Routes a message at an attempt, while some inboxes refuse with `code`."""

    def route(
        sent: QueueMessage = SENT,
        *refusing: str,
        attempt: int = 1,
        code: str = "Throttling",
        plane: Contract = plane,
    ) -> frozenset[str]:
        urls = [cloud.queues[each] for each in refusing]
        sqs = FailingClient(cloud.sqs, "send_message_batch", targets=urls, code=code)
        return cloud.route(replace(sent, attempt=attempt), plane=plane, sqs=sqs, id=f"i{attempt}")

    return route


Route = Callable[..., frozenset[str]]


def written(cloud: Cloud) -> list[tuple[Any, ...]]:
    return cloud.ledger_rows("destination", "outcome", "reason", "attempt")


def test_a_delivery_is_recorded_and_marked(cloud: Cloud, route: Route) -> None:
    assert route() == frozenset()
    assert written(cloud) == [(CENTRE, "delivered", None, 1), (FAMILY, "delivered", None, 1)]
    ((family,), (centre,)) = (cloud.received(address) for address in (FAMILY, CENTRE))
    assert hint_of(family, GUARANTEE_HINT) == BEST_EFFORT
    assert hint_of(centre, GUARANTEE_HINT) is None


@pytest.mark.parametrize("code", ["Throttling", "InvalidMessageContents"])
def test_a_failed_delivery_is_dropped(cloud: Cloud, route: Route, code: str) -> None:
    assert route(SENT, FAMILY, code=code) == frozenset()
    assert cloud.copies() == {CENTRE: 1}  # nor is it a dead letter
    assert written(cloud) == [(CENTRE, "delivered", None, 1), (FAMILY, "dropped", FAILED, 1)]


@pytest.mark.parametrize(
    ("refusing", "first"), [([CENTRE], ("delivered", None)), ([CENTRE, FAMILY], ("dropped", FAILED))]
)
def test_deliveries_of_a_redelivered_message_are_not_repeated(
    cloud: Cloud, route: Route, refusing: list[str], first: tuple[str, str | None]
) -> None:
    assert route(SENT, *refusing) == {"m1"}
    assert route(SENT, CENTRE, attempt=2) == {"m1"}
    assert route(SENT, attempt=3) == frozenset()
    assert cloud.copies() == {CENTRE: 1} | ({FAMILY: 1} if FAMILY not in refusing else {})
    assert written(cloud) == [
        (CENTRE, "delivered", None, 3),
        (FAMILY, *first, 1),
        (FAMILY, "dropped", NOT_REPEATED, 3),
    ]


@pytest.mark.parametrize("is_fifo", [False, True])
def test_promised_deliveries_go_first(cloud: Cloud, contract: Contract, is_fifo: bool) -> None:
    events = [event("1", ALARM), event("2", READING)]
    plane = at_best_effort(contract, "event_types", ALARM)
    sent, source = [message("m1", frame(pack(events)))], "device.outbox"
    if is_fifo:
        sent = [replace(message(each.id, each.json), group="a") for each in events]
        source, plane = "family-app.outbox", with_sends(plane, "family-app", ALARM, READING)
    left = iter([LIMITS.planning_ms] * len(sent) + [LIMITS.reserve_ms])
    assert cloud.route(*sent, source=source, plane=plane, remaining_ms=lambda: next(left, 0)) == frozenset()
    assert written(cloud) == [
        (CENTRE, "dropped", FAILED, 1),
        (CARE, "delivered", None, 1),
        (FAMILY, "dropped", FAILED, 1),
    ]


def test_a_dead_letter_is_promised(cloud: Cloud, contract: Contract, route: Route) -> None:
    plane = at_best_effort(contract, "participants", "device", "outbox")
    sent = message("m1", frame(b"no event"))
    assert route(sent, "operations.inbox", plane=plane) == {"m1"}
    assert route(sent, attempt=2, plane=plane) == frozenset()
    assert len(cloud.letters()) == 1
