"""What a router does that has just started and cannot read which contract is in force."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

import pytest

from eventplane.batch import pack
from eventplane.contract import Contract
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.envelope import Envelope
from eventplane.ledger import SENT_BEFORE
from lambdas.common.queue import QueueMessage
from lambdas.common.sqs import SqsSender
from lambdas.router.active_contract import RETRY_MS
from lambdas.router.dispatch import Dispatch
from lambdas.router.service import UNSEEN_AGAIN, UNSEEN_RECEIVES, RouterService
from tests.unit.lambdas.publishing import Table, Throttled, changed, subscribe
from tests.unit.lambdas.support import (
    ALARM,
    NOW_MS,
    READING,
    SUBSCRIPTIONS,
    TABLE,
    Cloud,
    Unwilling,
    event,
    frame,
    invocation,
    ledger_of,
    message,
    with_sends,
)

NEW = "org.example.new.v1"


class Cold:
    """A router that has just started, and DynamoDB, which refuses it the `throttled` table."""

    def __init__(
        self,
        cloud: Cloud,
        contract: Contract,
        throttled: str,
        source: str,
        unwilling: Collection[str],
        busy: Collection[str],
    ) -> None:
        self.cloud = cloud
        self.tables = Table(cloud, contract, now_ms=NOW_MS)
        self._dynamodb = Throttled(cloud.dynamodb, throttled)
        sqs = Unwilling(
            cloud.sqs,
            "send_message_batch",
            queue_urls={cloud.queues[each] for each in (*unwilling, *busy)},
            code="InvalidMessageContents" if unwilling else "Throttling",
        )
        self.end_the_rush = sqs.end
        self._sqs = sqs if unwilling or busy else cloud.sqs
        self._source = source
        self.restart()

    def restart(self) -> None:
        """Start a new process."""
        in_force = self.tables.in_force(*[self._dynamodb] * 3, source=self._source)
        self._router = RouterService(
            engine=in_force.engine,
            dispatch=Dispatch(SqsSender(self._sqs), self.cloud.queues),
            ledger=ledger_of(self.cloud),
            clock=lambda: self.tables.now_ms,
        )

    def route(self, *messages: QueueMessage) -> frozenset[str]:
        """The ids of messages that come again."""
        return self._router.process(messages, invocation())

    def end_the_throttling(self) -> None:
        self._dynamodb.tables.clear()
        self.tables.now_ms += RETRY_MS

    def decisions(self) -> list[tuple[str, str | None, str, str]]:
        """What the ledger says: event id, destination, outcome, basis."""
        lines = self.cloud.decisions()
        return sorted((each["id"], each["destination"], each["outcome"], each["basis"]) for each in lines)


@pytest.fixture
def plane(contract: Contract) -> Contract:
    """The contract that comes with the code."""
    return with_sends(with_sends(contract, "activity-service", NEW), "family-app", ALARM)


@pytest.fixture
def cold(cloud: Cloud, plane: Contract) -> Callable[..., Cold]:
    """Starts a router; the queues of inboxes `unwilling` will never take what is sent, `busy` ones later."""

    def cold(
        throttled: str = TABLE,
        source: str = "device.outbox",
        unwilling: Collection[str] = (),
        busy: Collection[str] = (),
    ) -> Cold:
        return Cold(cloud, plane, throttled, source, unwilling, busy)

    return cold


def queued(id: str, *events: Envelope, attempt: int = 1) -> QueueMessage:
    return message(id, frame(pack(events)), attempt)


@pytest.mark.parametrize("throttled", [TABLE, SUBSCRIPTIONS])
def test_what_is_due_on_a_route_that_is_not_known_yet_waits_and_arrives_there(
    cold: Callable[..., Cold], cloud: Cloud, plane: Contract, throttled: str
) -> None:
    router = cold(throttled)
    if throttled == TABLE:
        router.tables.put(changed(plane, "new", "carers.inbox", NEW))
    else:
        subscribe(router.tables, "news", NEW, "carers")
    sent = queued("m1", event("1", NEW))

    assert router.route(sent) == {"m1"}
    assert (router.decisions(), cloud.received("carers.inbox")) == ([], [])
    router.end_the_throttling()
    assert router.route(replace(sent, attempt=2)) == frozenset()
    assert len(cloud.received("carers.inbox")) == 1
    assert router.decisions() == [("1", "carers.inbox", "delivered", "in_force")]


def test_an_alarm_goes_at_once_and_again_by_the_contract_in_force(
    cold: Callable[..., Cold], cloud: Cloud, plane: Contract
) -> None:
    router = cold()
    published = changed(plane, "new", "carers.inbox", ALARM)
    router.tables.put(published)
    sent = queued("m1", event("1", ALARM))

    assert router.route(sent) == {"m1"}
    assert len(cloud.received("alarm-centre.inbox")) == 1
    assert cloud.received("carers.inbox") == []
    assert {(each["contract_version"], each["basis"]) for each in cloud.decisions()} == {
        (plane.version, "bundled")
    }
    assert cloud.keys("contracts/") == [f"contracts/{plane.version}.json"]

    router.end_the_throttling()
    assert router.route(replace(sent, attempt=2)) == frozenset()
    assert len(cloud.received("carers.inbox")) == 1
    # It is not sent there again, and the ledger says so by the contract in force.
    assert cloud.received("alarm-centre.inbox") == []
    in_force = [each for each in cloud.decisions() if each["basis"] == "in_force"]
    assert {each["contract_version"] for each in in_force} == {published.version}
    assert {(each["destination"], each["outcome"], each["reason"]) for each in in_force} == {
        ("alarm-centre.inbox", "delivered", SENT_BEFORE),
        ("family-app.inbox", "delivered", SENT_BEFORE),
        ("carers.inbox", "delivered", None),
    }


def test_of_a_mixed_frame_only_the_urgent_events_go_ahead(cold: Callable[..., Cold], cloud: Cloud) -> None:
    router = cold()
    sent = queued("m1", event("1", READING), event("2", ALARM), event("3", NEW))
    assert router.route(sent, queued("m2", event("4"))) == {"m1", "m2"}
    assert router.decisions() == [
        ("2", "alarm-centre.inbox", "delivered", "bundled"),
        ("2", "family-app.inbox", "delivered", "bundled"),
    ]
    router.end_the_throttling()
    assert router.route(replace(sent, attempt=2)) == frozenset()
    assert len(cloud.received("care-analytics.inbox")) == 1


def test_a_process_makes_no_copies_of_an_alarm_and_others_make_few(
    cold: Callable[..., Cold], cloud: Cloud
) -> None:
    router = cold()
    for attempt in range(1, UNSEEN_RECEIVES + 3):
        assert router.route(queued("m1", event("1", ALARM), attempt=attempt)) == {"m1"}
    assert len(cloud.received("alarm-centre.inbox")) == 1
    for attempt in range(1, UNSEEN_RECEIVES + 3):
        router.restart()
        assert router.route(queued("m2", event("2", ALARM), attempt=attempt)) == {"m2"}
    assert len(cloud.received("alarm-centre.inbox")) == UNSEEN_RECEIVES


def test_an_alarm_that_its_inbox_refused_at_first_does_not_wait_for_the_tables(
    cold: Callable[..., Cold], cloud: Cloud
) -> None:
    router = cold(busy=["alarm-centre.inbox"])
    for attempt in range(1, UNSEEN_RECEIVES + 1):
        router.route(queued("m1", event("1", ALARM), attempt=attempt))
    router.end_the_rush()
    for attempt in range(UNSEEN_RECEIVES + 1, UNSEEN_AGAIN + 2):
        assert router.route(queued("m1", event("1", ALARM), attempt=attempt)) == {"m1"}
    assert len(cloud.received("alarm-centre.inbox")) == 1


def test_what_the_contract_at_hand_would_refuse_is_no_dead_letter(
    cold: Callable[..., Cold], cloud: Cloud
) -> None:
    router = cold()
    assert router.route(message("m1", "no frame"), queued("m2", event("1", ALARM, deviceepoch="x"))) == {
        "m1",
        "m2",
    }
    assert cloud.received("operations.inbox") == []


def test_what_a_queue_will_never_take_is_a_dead_letter_on_the_same_basis(
    cold: Callable[..., Cold], cloud: Cloud
) -> None:
    router = cold(unwilling=["alarm-centre.inbox"])
    assert router.route(queued("m1", event("1", ALARM))) == {"m1"}
    assert len(cloud.received("operations.inbox")) == 1
    lines = cloud.decisions()
    assert {each["type"] for each in lines} == {ALARM, DEAD_LETTER_TYPE}
    assert {(each["outcome"], each["basis"]) for each in lines} == {("delivered", "bundled")}


def test_a_fifo_source_gets_everything_back_in_order(cold: Callable[..., Cold], cloud: Cloud) -> None:
    router = cold(source="family-app.outbox")
    group = [replace(message(f"m{at}", event(str(at), ALARM).json), group="a") for at in range(3)]
    assert router.route(*group) == {"m0", "m1", "m2"}
    assert (router.decisions(), cloud.received("alarm-centre.inbox")) == ([], [])
