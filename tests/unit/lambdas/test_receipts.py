"""Receipts from the router's request to the archive: what a reader did with each event of its inbox."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract import load_contract
from eventplane.batch import pack
from eventplane.contract import Contract, ContractError
from eventplane.envelope import Envelope
from eventplane.ledger import HandoverRecord, to_line
from eventplane.reader_receipts import ENDS, ReaderReceiptError, is_asked, read_receipt
from eventplane.reasons import Outcome
from eventplane_client import Mode
from eventplane_client.delivery import Delivery
from eventplane_client.errors import NothingThereError, UnhandleableError
from eventplane_client.functions import Handler, handles_events
from eventplane_client.inbox import Inbox
from eventplane_client.memory_duplicates import Memory, MemoryFilter
from eventplane_client.ports import Message
from eventplane_client.sqs import SqsTransport
from lab.histories.function import lambda_event
from lambdas.archive.receipts import ReceiptWriter
from lambdas.common.archive import Archiver
from tests.fakes.aws import FakeAws
from tests.fakes.faults import FailingClient
from tests.small_contract import with_changes
from tests.unit.lambdas.support import (
    ALARM,
    BUCKET,
    NOW_MS,
    READING,
    Cloud,
    LambdaContext,
    event,
    frame,
    invocation,
    message,
    with_route,
)

READER, INBOX = "alarm-centre", "alarm-centre.inbox"
QUEUE = "eventplane-test-alarm-centre-receipts"
VISIBILITY_S = 60


def contract_with(**inbox: Any) -> Contract:
    return with_changes(load_contract(), {"participants/alarm-centre/inbox": {"priority": "urgent", **inbox}})


def writer_of(aws: FakeAws) -> ReceiptWriter:
    archive = Archiver(aws.s3, BUCKET, lambda size: bytes(size))
    return ReceiptWriter(archive=archive, clock=aws.clock, inboxes={QUEUE: INBOX})


class Desk:
    """The alarm centre behind a router whose contract asks for receipts; `memory` is its filter's."""

    def __init__(self, aws: FakeAws, **inbox: Any) -> None:
        readings = with_route(contract_with(receipts=True, **inbox), "readings", to=INBOX, type=READING)
        self.cloud = Cloud(aws, readings)
        self.sqs, self.memory = aws.sqs, Memory()
        self.url, _ = (self.cloud.queue(f"eventplane-test-{READER}-{box}") for box in ("inbox", "outbox"))
        self.cloud.queues[INBOX] = self.url
        self.receipts = str(self.sqs.create_queue(QueueName=QUEUE)["QueueUrl"])

    def route(self, *ids: str, **attributes: Any) -> None:
        """Let a device's alarms come into the inbox."""
        self.send([event(each, ALARM, **attributes) for each in ids])

    def send(self, events: list[Envelope]) -> None:
        assert not self.cloud.route(message("m", frame(pack(events))))

    def transport(self, sqs: Any = None) -> SqsTransport:
        return SqsTransport.find(READER, "test", sqs or self.sqs, max_receives=1_000)

    def inbox(self, sqs: Any = None, mode: Mode = Mode.EXACTLY_ONCE) -> Inbox:
        return Inbox(
            READER, self.transport(sqs), MemoryFilter(self.memory), mode=mode, on_notice=lambda _: None
        )

    def batch(self) -> dict[str, Any]:
        """What Lambda calls a function with."""
        found = self.sqs.receive_message(
            QueueUrl=self.url, MaxNumberOfMessages=10, MessageAttributeNames=["All"], AttributeNames=["All"]
        )
        return lambda_event(self.url, found["Messages"])

    def function(
        self, sqs: Any, handler: Callable[[Envelope], object], mode: Mode = Mode.EXACTLY_ONCE
    ) -> Handler:
        wiring = (self.transport(sqs), lambda _: MemoryFilter(self.memory))
        return handles_events(READER, "test", mode=mode, wiring=lambda: wiring)(handler)

    def stated(self) -> list[tuple[str, str, str | None]]:
        """What the receipts in the queue say: id, outcome, reason."""
        lines = [json.loads(line) for body in self.sqs.bodies(self.receipts) for line in body.split("\n")]
        return [(each["id"], each["outcome"], each["reason"]) for each in lines]


def test_a_receipt_goes_from_the_reader_to_the_archive(fake_aws: FakeAws) -> None:
    desk = Desk(fake_aws)
    desk.route("1")
    with desk.inbox() as inbox:
        received = inbox.receive(0)
        fake_aws.clock.advance(0.25)
        received.ack()
    (body,) = desk.sqs.take(desk.receipts)
    sent = replace(message("m", body), queue=QUEUE, sent_at_ms=fake_aws.clock())
    assert not writer_of(fake_aws).process([sent], invocation())
    (row,) = desk.cloud.lines("handovers/")
    names = ("channel", "id", "outcome", "reason", "status", "sender", "attempt")
    assert [row[name] for name in names] == [INBOX, "1", "delivered", None, None, "home-1/", 1]
    assert row["contract_version"] == desk.cloud.contract.version
    assert row["route"] in {each.name for each in desk.cloud.contract.routes}
    assert row["entered_at_ms"] <= row["decided_at_ms"] <= sent.sent_at_ms


def test_each_end_has_its_outcome(fake_aws: FakeAws) -> None:
    desk = Desk(fake_aws)
    desk.route("handled", "bad")
    desk.route("late", time="2026-01-01T00:00:00Z", expirytime="2026-01-01T00:00:05Z")
    fake_aws.clock.advance(60)
    with desk.inbox() as inbox:
        for received in inbox.receive_batch(10, 0):
            if received.event.id == "bad":
                received.nack(UnhandleableError("no_such_home", "nobody lives there"))
            else:
                received.ack()
    assert sorted(desk.stated()) == [
        ("bad", "dead_lettered", "no_such_home"),
        ("handled", "delivered", None),
        ("late", "expired", None),
    ]


@pytest.mark.lost_answers
def test_a_receipt_is_sent_whatever_answer_is_lost(fake_aws: FakeAws) -> None:
    desk = Desk(fake_aws)
    transport, received = desk.transport(), event("1", ALARM)
    assert transport.receipts
    transport.receipts.add(Delivery(received, Message(b"", 1, "handle", receipts=100), b""))
    assert transport.receipts.send()
    assert {*desk.stated()} == {("1", "delivered", None)}


def test_a_lost_receipt_repeats_no_handling(fake_aws: FakeAws) -> None:
    desk = Desk(fake_aws)
    desk.route("1")
    with desk.inbox(FailingClient(fake_aws.sqs, "send_message")) as inbox:
        inbox.receive(0).ack()
    assert len(fake_aws.sqs.bodies(desk.url)) == 1
    fake_aws.clock.advance(VISIBILITY_S)
    with desk.inbox() as inbox, pytest.raises(NothingThereError):
        inbox.receive(0)
    assert desk.stated() == [("1", "delivered", "settled_before")]
    assert fake_aws.sqs.bodies(desk.url) == []


@pytest.mark.parametrize("code", ["", "AccessDenied"])
def test_no_queue_no_receipts(fake_aws: FakeAws, caplog: pytest.LogCaptureFixture, code: str) -> None:
    desk = Desk(fake_aws)
    if not code:
        fake_aws.sqs.delete_queue(QueueUrl=desk.receipts)
    desk.route("1")
    with desk.inbox(FailingClient(fake_aws.sqs, "send_message", code=code) if code else None) as inbox:
        inbox.receive(0).ack()
    assert fake_aws.sqs.bodies(desk.url) == []
    assert "deploy the contract" in caplog.text


def test_a_function_sends_the_receipts_of_a_batch_as_one_message(fake_aws: FakeAws) -> None:
    desk = Desk(fake_aws)
    desk.route("1", "2", "3")

    given = desk.batch()
    failing = FailingClient(fake_aws.sqs, "send_message")
    kept = desk.function(failing, lambda _: None)(given, LambdaContext())
    assert len(kept["batchItemFailures"]) == 3
    assert desk.function(fake_aws.sqs, lambda _: None)(given, LambdaContext()) == {"batchItemFailures": []}
    assert len(fake_aws.sqs.bodies(desk.receipts)) == 1
    assert {each[1:] for each in desk.stated()} == {("delivered", "settled_before")}


def test_at_most_once_ignores_lost_receipts(fake_aws: FakeAws) -> None:
    desk = Desk(fake_aws)
    desk.route("1", "2")
    given, failing, handled = desk.batch(), FailingClient(fake_aws.sqs, "send_message"), list[str]()

    def handle(event: Envelope) -> None:
        handled.append(event.id)

    function = desk.function(failing, handle, Mode.AT_MOST_ONCE)
    assert len(function(given, LambdaContext())["batchItemFailures"]) == 2
    assert handled == []
    failing.end()
    assert function(given, LambdaContext()) == {"batchItemFailures": []}
    assert sorted(handled) == sorted(id for id, *_ in desk.stated()) == ["1", "2"]


def test_a_packed_message_has_one_message_of_receipts(fake_aws: FakeAws) -> None:
    desk = Desk(fake_aws, priority="normal", events_per_message=50)
    events = [event(str(each), READING) for each in range(20)]
    desk.send(events)
    with desk.inbox() as inbox:
        for _ in events:
            inbox.receive(0).ack()
    assert len(desk.stated()) == 20
    assert len(fake_aws.sqs.bodies(desk.receipts)) < 20


def test_a_pack_keeps_unsent_receipts(fake_aws: FakeAws) -> None:
    desk = Desk(fake_aws, priority="normal", events_per_message=50)
    desk.send([event("1", READING), event("2", READING)])
    desk.route("alarm")
    failing = FailingClient(fake_aws.sqs, "send_message")
    with desk.inbox(failing) as inbox:
        first, second, third = sorted(inbox.receive_batch(10, 0), key=lambda each: each.event.id)
        first.ack()
        third.ack()  # with it the receipt of the first is tried
        failing.end()
        second.ack()
    assert {("1", "delivered", None), ("2", "delivered", None)} <= {*desk.stated()}


def test_what_leaves_the_queue_with_its_pack_leaves_a_receipt_each(fake_aws: FakeAws) -> None:
    desk = Desk(fake_aws, priority="normal", events_per_message=50)
    desk.send([event(str(each), READING) for each in range(3)])
    with desk.inbox(mode=Mode.AT_MOST_ONCE) as inbox:
        for at in range(3):
            inbox.receive(0).ack()
            assert len(desk.stated()) == at + 1


def test_unsent_receipts_are_bounded(fake_aws: FakeAws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eventplane_client.receipts.MOST_KEPT", 3)
    desk = Desk(fake_aws)
    failing = FailingClient(fake_aws.sqs, "send_message")
    receipts = desk.transport(failing).receipts
    assert receipts
    for id, again in [("1", None), ("2", None), ("1", "settled_before"), ("3", None), ("4", None)]:
        received = Message(b"", 1, "handle", receipts=100, id="m")
        receipts.add(Delivery(event(id, ALARM), received, b"", reason=again))
        assert not receipts.send()
    failing.end()
    assert receipts.send()
    assert receipts.send()
    assert desk.stated() == [(id, "delivered", None) for id in ("1", "2", "3")]


def test_a_share_of_the_events_has_receipts(fake_aws: FakeAws) -> None:
    desk = Desk(fake_aws, receipts_percent=30)
    ids = [str(each) for each in range(60)]
    desk.route(*ids)
    with desk.inbox(mode=Mode.AT_MOST_ONCE) as inbox:
        got = [inbox.receive(0).event for _ in ids]
    asked = sorted(each.id for each in got if is_asked(each.source, each.id, 30))
    assert sorted(id for id, *_ in desk.stated()) == asked
    assert 0 < len(asked) < 60


@given(st.integers(1, 99))
def test_the_share_is_about_what_was_asked_for(percent: int) -> None:
    asked = sum(is_asked("/homes/1", str(each), percent) for each in range(2_000))
    assert abs(asked - 20 * percent) < 120


RECEIPT = HandoverRecord(
    decided_at_ms=NOW_MS,
    entered_at_ms=NOW_MS - 5,
    channel=INBOX,
    contract_version="c" * 16,
    source="/homes/1",
    id="1",
    type=ALARM,
    outcome=Outcome.DELIVERED,
    reason=None,
    status=None,
    attempt=1,
    message_id="m",
    route="alarms",
    sender="home-1",
)


def test_a_valid_receipt_is_read_as_written() -> None:
    line = to_line(RECEIPT)
    assert read_receipt(line, INBOX) == RECEIPT
    assert read_receipt(line[:-1] + ',"of_a_newer_version":1}', INBOX) == RECEIPT


@pytest.mark.parametrize(
    "members",
    [
        {"channel": "family-app.inbox"},
        {"outcome": "lost"},
        {"status": 200},
        {"attempt": True},
        {"attempt": -1},
        {"decided_at_ms": 10**20},
        {"sender": None},
        {"id": 7},
        {"source": "x" * 200_000},
        {"id": "\ud800"},
        {"reason": "\udfff"},
    ],
    ids=lambda members: next(iter(members)),
)
def test_a_foreign_receipt_is_quarantined(fake_aws: FakeAws, members: dict[str, Any]) -> None:
    bad = json.dumps({**asdict(RECEIPT), **members})
    with pytest.raises(ReaderReceiptError):
        read_receipt(bad, INBOX)
    cloud = Cloud(fake_aws, load_contract())
    sent = replace(message("m", f"{bad}\n{to_line(RECEIPT)}"), queue=QUEUE)
    assert not writer_of(fake_aws).process([sent], invocation())
    assert [row["id"] for row in cloud.lines("handovers/")] == ["1"]
    assert [row["reason"] for row in cloud.lines("quarantine/")] == ["not_a_receipt"]


def test_a_message_of_many_bad_lines_is_one_row_of_the_quarantine(fake_aws: FakeAws) -> None:
    cloud = Cloud(fake_aws, load_contract())
    late = to_line(replace(RECEIPT, entered_at_ms=NOW_MS + 10**9, decided_at_ms=NOW_MS + 10**9))
    body = "\n".join([*["1"] * 1_000, to_line(RECEIPT), late])
    sent = replace(message("m", body), queue=QUEUE, sent_at_ms=NOW_MS + 1)
    assert not writer_of(fake_aws).process([sent], invocation())
    assert [row["body"] for row in cloud.lines("quarantine/")] == [body]
    assert [row["decided_at_ms"] for row in cloud.lines("handovers/")] == [NOW_MS, NOW_MS + 1]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=5), each, max_size=3),
    max_leaves=5,
)


@given(st.text() | st.dictionaries(st.sampled_from(sorted(asdict(RECEIPT))), JSON).map(
    lambda changed: json.dumps({**asdict(RECEIPT), **changed})
))  # fmt: skip
def test_any_line_is_a_receipt_or_has_a_named_error(line: str) -> None:
    try:
        receipt = read_receipt(line, INBOX)
    except ReaderReceiptError:
        return
    assert receipt.channel == INBOX
    assert receipt.outcome in ENDS


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("presence-monitor/inbox/receipts", True, "a function of the plane"),
        ("carers/inbox", {"receipts_percent": 50}, "set `receipts: true`"),
        ("alarm-centre/inbox", {"receipts": True, "transport": "nats"}, "over nats"),
        ("alarm-centre/inbox", {"receipts": True, "webhook": {"timeout_s": 5}}, "recorded in any case"),
    ],
)
def test_receipts_are_refused_where_none_are_left(path: str, value: object, problem: str) -> None:
    with pytest.raises(ContractError, match=problem):
        with_changes(load_contract(), {f"participants/{path}": value})
