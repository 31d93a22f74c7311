"""A router that has just started and cannot read which contract is in force."""

from dataclasses import replace

import pytest

from eventplane.batch import pack
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.envelope import Envelope
from eventplane.ledger import SENT_BEFORE
from lambdas.common.queue import QueueMessage
from lambdas.router.active_contract import RETRY_MS
from lambdas.router.service import UNSEEN_AGAIN, UNSEEN_RECEIVES
from tests.fakes.faults import FailingClient
from tests.unit.lambdas.support import (
    ALARM,
    READING,
    SUBSCRIPTIONS,
    TABLE,
    Cloud,
    event,
    frame,
    invocation,
    message,
    with_route,
    with_sends,
)

NEW = "org.example.new.v1"
CENTRE, FAMILY, CARERS = "alarm-centre.inbox", "family-app.inbox", "carers.inbox"


class Cold:
    """A router that has just started, and DynamoDB, which refuses it the `throttled` table.

    Its queue `inbox`, if one is named, refuses what is sent with `code`.
    """

    def __init__(
        self,
        cloud: Cloud,
        throttled: str = TABLE,
        source: str = "device.outbox",
        inbox: str | None = None,
        code: str = "Throttling",
    ) -> None:
        self.cloud = cloud
        self._dynamodb = FailingClient(cloud.dynamodb, targets={throttled})
        self._source = source
        refusing = () if inbox is None else (cloud.queues[inbox],)
        self.sqs = FailingClient(cloud.sqs, "send_message_batch", targets=refusing, code=code)
        self.restart()

    def restart(self) -> None:
        """Start a new process."""
        in_force = self.cloud.in_force(self._dynamodb, source=self._source)
        self._router = self.cloud.router(engine=in_force.engine, source=self._source, sqs=self.sqs)

    def route(self, *messages: QueueMessage) -> frozenset[str]:
        """Return the ids of messages that are redelivered."""
        return self._router.process(messages, invocation())

    def end_the_throttling(self) -> None:
        self._dynamodb.end()
        self.cloud.clock.now_ms += RETRY_MS

    def decisions(self) -> list[tuple[object, ...]]:
        return self.cloud.ledger_rows("id", "destination", "outcome", "basis")


@pytest.fixture
def cloud(cloud: Cloud) -> Cloud:
    """A plane whose bundled contract lets two participants send more."""
    cloud.contract = with_sends(with_sends(cloud.contract, "activity-service", NEW), "family-app", ALARM)
    return cloud


def queued(id: str, *events: Envelope, attempt: int = 1) -> QueueMessage:
    return message(id, frame(pack(events)), attempt)


@pytest.mark.parametrize("throttled", [TABLE, SUBSCRIPTIONS])
@pytest.mark.lost_answers
def test_an_event_waits_for_an_unknown_route(cloud: Cloud, throttled: str) -> None:
    router = Cold(cloud, throttled)
    if throttled == TABLE:
        cloud.publish(with_route(cloud.contract, "new", CARERS, NEW))
    else:
        cloud.subscribe("news", NEW, "carers")
    sent = queued("m1", event("1", NEW))

    assert router.route(sent) == {"m1"}
    assert (router.decisions(), cloud.copies()) == ([], {})
    router.end_the_throttling()
    assert router.route(replace(sent, attempt=2)) == frozenset()
    assert cloud.copies() == {CARERS: 1}
    assert router.decisions() == [("1", CARERS, "delivered", "in_force")]


def test_an_alarm_is_sent_then_completed(cloud: Cloud) -> None:
    router = Cold(cloud)
    published = with_route(cloud.contract, "new", CARERS, ALARM)
    cloud.publish(published)
    sent = queued("m1", event("1", ALARM))

    assert router.route(sent) == {"m1"}
    assert cloud.copies() == {CENTRE: 1, FAMILY: 1}
    assert set(cloud.ledger_rows("contract_version", "basis")) == {(cloud.contract.version, "bundled")}
    assert cloud.keys("contracts/") == [f"contracts/{cloud.contract.version}.json"]

    router.end_the_throttling()
    assert router.route(replace(sent, attempt=2)) == frozenset()
    # It is not sent there again; the ledger records that by the contract in force.
    assert cloud.copies() == {CARERS: 1}
    names = ("basis", "contract_version", "destination", "outcome", "reason")
    assert [row[2:] for row in cloud.ledger_rows(*names) if row[:2] == ("in_force", published.version)] == [
        (CENTRE, "delivered", SENT_BEFORE),
        (CARERS, "delivered", None),
        (FAMILY, "delivered", SENT_BEFORE),
    ]


def test_only_urgent_events_of_a_mixed_frame_are_sent_at_once(cloud: Cloud) -> None:
    router = Cold(cloud)
    sent = queued("m1", event("1", READING), event("2", ALARM), event("3", NEW))
    assert router.route(sent, queued("m2", event("4"))) == {"m1", "m2"}
    assert router.decisions() == [
        ("2", CENTRE, "delivered", "bundled"),
        ("2", FAMILY, "delivered", "bundled"),
    ]
    router.end_the_throttling()
    assert router.route(replace(sent, attempt=2)) == frozenset()
    assert cloud.copies()["care-analytics.inbox"] == 1


def test_a_process_makes_no_copies_of_an_alarm_and_others_make_few(cloud: Cloud) -> None:
    router = Cold(cloud)
    for attempt in range(1, UNSEEN_RECEIVES + 3):
        assert router.route(queued("m1", event("1", ALARM), attempt=attempt)) == {"m1"}
    assert cloud.copies()[CENTRE] == 1
    for attempt in range(1, UNSEEN_RECEIVES + 3):
        router.restart()
        assert router.route(queued("m2", event("2", ALARM), attempt=attempt)) == {"m2"}
    assert cloud.copies()[CENTRE] == UNSEEN_RECEIVES


def test_a_refused_alarm_waits_for_no_table(cloud: Cloud) -> None:
    router = Cold(cloud, inbox=CENTRE)
    for attempt in range(1, UNSEEN_AGAIN + 2):
        if attempt == UNSEEN_RECEIVES + 1:
            router.sqs.end()
        assert router.route(queued("m1", event("1", ALARM), attempt=attempt)) == {"m1"}
    assert cloud.copies()[CENTRE] == 1


def test_the_known_contract_makes_no_letter(cloud: Cloud) -> None:
    unreadable, wrong = message("m1", "no frame"), queued("m2", event("1", ALARM, deviceepoch="x"))
    assert Cold(cloud).route(unreadable, wrong) == {"m1", "m2"}
    assert cloud.letters() == []


def test_a_refusal_for_good_is_a_letter(cloud: Cloud) -> None:
    router = Cold(cloud, inbox=CENTRE, code="InvalidMessageContents")
    assert router.route(queued("m1", event("1", ALARM))) == {"m1"}
    assert len(cloud.letters()) == 1
    found = set(cloud.ledger_rows("type", "outcome", "basis"))
    assert found == {(ALARM, "delivered", "bundled"), (DEAD_LETTER_TYPE, "delivered", "bundled")}


def test_messages_of_a_fifo_source_are_redelivered_in_order(cloud: Cloud) -> None:
    group = [replace(message(f"m{at}", event(str(at), ALARM).json), group="a") for at in range(3)]
    assert Cold(cloud, source="family-app.outbox").route(*group) == {"m0", "m1", "m2"}
    assert cloud.copies() == {}
