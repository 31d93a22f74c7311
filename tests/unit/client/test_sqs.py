"""The transport over SQS: how it finds its queues, what it refuses, and the order of FIFO queues."""

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ReadTimeoutError

from eventplane.envelope import Envelope, write_event
from eventplane.limits import MAX_SENT_EVENT_BYTES
from eventplane.values import timestamp
from eventplane_client import Client, ClientSettings, Mode, connect
from eventplane_client.aws import aws_client
from eventplane_client.errors import (
    ClientSettingsError,
    LeaseTooLongError,
    NothingThereError,
    NotRegisteredError,
    RefusedError,
    UnavailableError,
    UnhandleableError,
)
from eventplane_client.inbox import Inbox
from eventplane_client.memory_duplicates import Memory, MemoryFilter
from eventplane_client.signed_http import SignedHttp
from eventplane_client.sqs import SqsTransport
from eventplane_client.subscription import NoSubscriptions
from eventplane_client.system import SYSTEM
from lab.histories.engine import Engine
from lab.histories.threads import Program
from tests.fakes.aws import FakeAws
from tests.fakes.faults import FailingClient
from tests.unit.client.worlds import READER, SqsWorld, create_filter_table, event, put, reading


@pytest.fixture
def sqs(fake_aws: FakeAws) -> Any:
    client = fake_aws.sqs
    dead = client.create_queue(QueueName="dead")["QueueUrl"]
    arn = client.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    redrive = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 7})
    client.create_queue(
        QueueName=f"eventplane-test-{READER}-inbox",
        Attributes={"RedrivePolicy": redrive, "VisibilityTimeout": "77"},
    )
    client.create_queue(
        QueueName=f"eventplane-test-{READER}-outbox.fifo",
        Attributes={"FifoQueue": "true", "ContentBasedDeduplication": "false"},
    )
    return client


def attribute(sqs: Any, url: str, name: str) -> str:
    return str(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[name])["Attributes"][name])


def find(sqs: Any, **options: Any) -> SqsTransport:
    return SqsTransport.find(READER, "test", sqs, max_receives=5, **options)


def inbox_with(sqs: Any, *events: Envelope) -> str:
    """Send `events` into the inbox; return its URL."""
    url = str(sqs.get_queue_url(QueueName=f"eventplane-test-{READER}-inbox")["QueueUrl"])
    for each in events:
        sqs.send_message(QueueUrl=url, MessageBody=each.json)
    return url


def set_receives(sqs: Any, most: int) -> None:
    """Let the inbox take away what is received oftener than `most` times."""
    url = inbox_with(sqs)
    policy = json.dumps({**json.loads(attribute(sqs, url, "RedrivePolicy")), "maxReceiveCount": most})
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": policy})


@pytest.mark.source("P-W1")
@pytest.mark.lost_answers
def test_queues_of_both_kinds_are_found(sqs: Any) -> None:
    transport = find(sqs)
    assert (transport.visibility_s, transport.max_receives) == (77.0, 6)
    transport.put(event("a"), 1, durable=True)
    outbox = sqs.get_queue_url(QueueName=f"eventplane-test-{READER}-outbox.fifo")["QueueUrl"]
    (message,) = sqs.receive_message(QueueUrl=outbox)["Messages"]
    assert json.loads(message["Body"])["id"] == "a"


def test_a_message_has_attempt_time_and_route(sqs: Any) -> None:
    route = {"route": {"StringValue": "alarms", "DataType": "String"}}
    sqs.send_message(QueueUrl=inbox_with(sqs), MessageBody=event("a").json, MessageAttributes=route)
    (message,) = find(sqs).receive(10, 0)
    assert (message.body, message.attempt, message.route) == (event("a").json.encode(), 1, "alarms")
    assert message.sent_at_ms == sqs.clock()


def test_a_queue_that_delivers_nothing_after_the_lease_is_refused(sqs: Any) -> None:
    set_receives(sqs, 2)
    with pytest.raises(LeaseTooLongError) as caught:
        connect(ClientSettings("sqs:test", READER))
    assert (caught.value.lease_s, caught.value.visibility_s, caught.value.receives) == (77.0, 77.0, 1)
    connect(ClientSettings("sqs:test", READER, mode=Mode.AT_LEAST_ONCE)).close()


@pytest.mark.source("F5")
def test_who_has_no_queues_in_the_environment_is_not_registered(sqs: Any) -> None:
    with pytest.raises(NotRegisteredError, match="deploy"):
        SqsTransport.find("nobody", "test", sqs, max_receives=5)


@pytest.mark.source("F5")
@pytest.mark.parametrize(
    ("code", "error"), [("Throttling", UnavailableError), ("InvalidMessageContents", RefusedError)]
)
def test_what_sqs_says_of_a_put_is_told(sqs: Any, code: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        find(FailingClient(sqs, "send_message", code=code)).put(event(), 1, durable=True)


def test_an_uncountable_event_is_refused(sqs: Any) -> None:
    head = {"id": "1", "source": "/a", "type": "t"}
    full = MAX_SENT_EVENT_BYTES - len(write_event(head, "").json)
    find(sqs).put(write_event(head, "x" * full), 1, durable=True)
    with pytest.raises(RefusedError, match=f"at most {MAX_SENT_EVENT_BYTES}") as caught:
        find(sqs).put(write_event(head, "x" * (full + 1)), 1, durable=True)
    assert caught.value.reason == "too_large"


@pytest.mark.source("P4", "C1")
def test_best_effort_is_tried_once(sqs: Any) -> None:
    transport = find(FailingClient(sqs, "send_message"))
    client = Client(READER, transport, lambda: MemoryFilter(Memory()), NoSubscriptions("none"))
    with client:
        client.put(event(), best_effort=True)
        client.put(event(deliveryguarantee="best_effort"))
        with pytest.raises(UnavailableError):
            client.put(event())


def test_at_most_once_hands_out_nothing_that_comes_again(sqs: Any) -> None:
    inbox_url = inbox_with(sqs, event("a"))
    sqs.set_queue_attributes(QueueUrl=inbox_url, Attributes={"VisibilityTimeout": "1"})
    deaf = find(FailingClient(sqs, "delete_message_batch"))
    with Inbox(READER, deaf, None, mode=Mode.AT_MOST_ONCE) as inbox, pytest.raises(NothingThereError):
        inbox.get(0)
    sqs.clock.advance(1)
    with Inbox(READER, find(sqs), None, mode=Mode.AT_MOST_ONCE) as inbox:
        assert inbox.get(5).id == "a"


@pytest.mark.lost_answers
@pytest.mark.parametrize("is_fifo", [False, True])
def test_what_is_released_comes_again(sqs: Any, is_fifo: bool) -> None:
    inbox_url = inbox_with(sqs)
    fifo = {"MessageGroupId": "g", "MessageDeduplicationId": "a"} if is_fifo else {}
    if is_fifo:
        sqs.delete_queue(QueueUrl=inbox_url)
        attributes = {"FifoQueue": "true", "VisibilityTimeout": "77"}
        inbox_url = sqs.create_queue(QueueName=f"eventplane-test-{READER}-inbox.fifo", Attributes=attributes)[
            "QueueUrl"
        ]
    transport = find(sqs)
    sqs.send_message(QueueUrl=inbox_url, MessageBody=event("a").json, **fifo)
    (message,) = transport.receive(1, 0)
    transport.extend([message])
    transport.release(message, 0)
    (again,) = transport.receive(1, 0)
    assert (again.body, again.attempt > message.attempt) == (message.body, True)


def hidden_s(sqs: Any) -> float:
    """Return for how long the last message of the inbox is hidden, seconds."""
    return float(sqs.queue(inbox_with(sqs)).messages[-1].visible_ms - sqs.clock()) / 1_000


@pytest.mark.parametrize(("fault", "first_s"), [("", 4), ("fails", 77), ("repeated", 77)])
def test_lost_answers_leave_events_hidden(sqs: Any, fault: str, first_s: int) -> None:
    class Lossy(FailingClient):
        def receive_message(self, **request: Any) -> Any:
            if fault == "fails":
                raise ReadTimeoutError(endpoint_url="https://sqs")
            return {**sqs.receive_message(**request), "ResponseMetadata": {"RetryAttempts": int(fault != "")}}

    transport = find(Lossy(sqs, ""), system=replace(SYSTEM, monotonic=lambda: sqs.clock() / 1_000))
    with suppress(UnavailableError):
        transport.receive(10, 0)
    fault = ""
    inbox_url = inbox_with(sqs, event("a"))
    for expected_s in (first_s, 77):
        assert len(transport.receive(10, 0)) == 1
        assert hidden_s(sqs) == expected_s
        sqs.clock.advance(expected_s)
    sqs.purge_queue(QueueUrl=inbox_url)
    inbox_with(sqs, event("b"))
    transport.receive(10, 0)
    assert hidden_s(sqs) == 4


@pytest.mark.parametrize(
    ("mode", "receives", "first_s"),
    [(Mode.AT_LEAST_ONCE, 4, 4), (Mode.AT_LEAST_ONCE, 3, 77), (Mode.AT_MOST_ONCE, 4, 77)],
)
def test_what_nobody_has_shows_again_soon(sqs: Any, mode: Mode, receives: int, first_s: int) -> None:
    set_receives(sqs, receives)
    inbox_with(sqs, event("a"), event("b"))
    with connect(ClientSettings("sqs:test", READER, mode=mode)) as client, client.subscribe() as inbox:
        inbox.get(0)
        assert hidden_s(sqs) == first_s


class Machine:
    """Readers of the inbox in virtual time, on one filter; `asked` are the requests that hide messages."""

    def __init__(self, sqs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.engine = Engine()
        self.asked: list[int] = []
        self._sqs = sqs
        self._memory = Memory()
        hide = sqs.change_message_visibility_batch

        def noted(**request: Any) -> Any:
            self.asked.append(len(request["Entries"]))
            return hide(**request)

        monkeypatch.setattr(sqs, "clock", lambda: self.engine.now_ms)
        monkeypatch.setattr(sqs, "change_message_visibility_batch", noted)

    def start(self, read: Callable[[Inbox], None]) -> Program:
        """Start a process that reads."""
        program = Program(self.engine, READER)
        system = program.system(os.urandom)
        filter = MemoryFilter(self._memory, lease=lambda: 77, clock=system.monotonic)
        inbox = Inbox(READER, find(self._sqs, system=system), filter, on_doubt=lambda _: True, system=system)
        program.start(READER, lambda: read(inbox))
        return program


@pytest.mark.parametrize(("handling_s", "asked"), [(0.1, []), (1.0, [9]), (10.0, [10, 8, 5, 3])])
def test_only_slow_handlers_cost_requests(
    sqs: Any, monkeypatch: pytest.MonkeyPatch, handling_s: float, asked: list[int]
) -> None:
    machine = Machine(sqs, monkeypatch)
    inbox_url = inbox_with(sqs, *(event(str(number)) for number in range(10)))
    attempts: list[int] = []

    def read(inbox: Inbox) -> None:
        for _ in range(10):
            received = inbox.receive(0)
            attempts.append(received.attempt)
            machine.engine.sleep(handling_s)
            received.ack()

    machine.start(read)
    machine.engine.run(200)
    assert (attempts, sqs.queue(inbox_url).messages, machine.asked) == ([1] * 10, [], asked)


def test_after_a_crash_a_lease_has_to_end(sqs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(sqs, monkeypatch)
    engine = machine.engine
    inbox_with(sqs, event("a"), event("b"))
    seen: list[tuple[str, int, int]] = []

    def crash(inbox: Inbox) -> None:
        inbox.receive(0)
        engine.sleep(1_000)

    def read(inbox: Inbox) -> None:
        while True:
            try:
                received = inbox.receive(0)
            except NothingThereError:
                engine.sleep(0.5)
                continue
            seen.append((received.event.id, received.attempt, int(engine.now_s)))
            received.ack()

    crashed = machine.start(crash)
    engine.run(1)
    crashed.kill()
    machine.start(read)
    engine.run(200)
    # At the first of its deliveries its reader was still presumed alive.
    assert seen == [("b", 2, 4), ("a", 3, 81)]


@pytest.mark.lost_answers
def test_the_settings_lead_to_it(sqs: Any) -> None:
    create_filter_table(boto3.client("dynamodb"), "eventplane-test-filter")
    for state in ("", "dynamodb:eventplane-test-filter"):
        sent = event()
        inbox_with(sqs, sent)
        with connect(ClientSettings("sqs:test", READER, state=state)) as client, client.subscribe() as inbox:
            assert inbox.get(5).id == sent.id


@pytest.mark.source("N3")
@pytest.mark.source("C4")
@pytest.mark.parametrize(("ahead_s", "is_handed_out"), [(3_600, True), (0, False), (-3_600, False)])
def test_queue_time_expires(
    sqs: Any, monkeypatch: pytest.MonkeyPatch, ahead_s: int, is_handed_out: bool
) -> None:
    """The event ends half an hour ago by this machine's clock, or in half an hour where that is behind."""

    class Queue:
        def __getattr__(self, name: str) -> Any:
            return getattr(sqs, name)

        def receive_message(self, **request: Any) -> Any:
            answer = sqs.receive_message(**request)
            for each in answer.get("Messages", []):
                now_ms = int((time.time() - ahead_s) * 1_000)
                each["Attributes"]["ApproximateFirstReceiveTimestamp"] = str(now_ms)
            return answer

    monkeypatch.setattr(
        "eventplane_client.aws.aws_client",
        lambda each, **_: Queue() if each == "sqs" else boto3.client(each),
    )
    ends = datetime.now(UTC) + timedelta(seconds=1_800 if ahead_s < 0 else -1_800)
    inbox_with(sqs, event("a", expirytime=timestamp(ends)))
    settings = ClientSettings("sqs:test", READER, mode=Mode.AT_LEAST_ONCE)
    with connect(settings) as client, client.subscribe() as inbox:
        if is_handed_out:
            assert inbox.get(1).id == "a"
        else:
            with pytest.raises(NothingThereError):
                inbox.get(0)


def test_in_a_fifo_inbox_nothing_overtakes_what_was_given_back(fake_aws: FakeAws) -> None:
    client = fake_aws.sqs
    attributes = {"FifoQueue": "true", "VisibilityTimeout": "600"}
    url = client.create_queue(QueueName="in.fifo", Attributes=attributes)["QueueUrl"]
    for id in "abc":
        client.send_message(
            QueueUrl=url, MessageBody=event(id).json, MessageGroupId="g", MessageDeduplicationId=id
        )
    transport = SqsTransport(READER, client, inbox=url, outbox=url, visibility_s=600, max_receives=5)
    with Inbox(READER, transport, MemoryFilter()) as inbox:
        inbox.receive(1).nack("again")
        with pytest.raises(NothingThereError):
            inbox.receive(0)


def test_a_missing_region_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(ClientSettingsError, match="'AWS_REGION': it is missing; set it"):
        connect(ClientSettings("sqs:dev", "carers"))
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(ClientSettingsError, match="nobody"):
        connect(ClientSettings("sqs:dev", "carers"))
    monkeypatch.delenv("AWS_PROFILE")
    monkeypatch.setenv("AWS_REGION", "eu-west-3")
    assert aws_client("sqs").meta.region_name == "eu-west-3"
    assert SignedHttp("https://api")._session.region_name == "eu-west-3"


def test_a_redriven_letter_is_handled_once() -> None:
    world, failing = SqsWorld(), event("bad")
    put(world, failing)
    with reading(world) as inbox:
        for mark in (None, "run-1.letter-1"):
            # Each decision ends with a letter of its own, or its reader would take the second for a copy.
            inbox.receive(0).nack(UnhandleableError("database_down"))
            if mark is None:
                # The run that was killed, its next delivery, and the run that sent the letter again.
                for copy in ("run-1.letter-1", "run-1.letter-1", "run-2.letter-1"):
                    world.deliver(failing, redrive=copy)
        assert len({each.id for each in world.letters()}) == 2
        with pytest.raises(NothingThereError):
            inbox.get(0)
        world.deliver(failing, redrive="run-2.letter-2")
        assert inbox.get(0).id == "bad"
        world.deliver(failing)
        with pytest.raises(NothingThereError):
            inbox.get(0)
    assert world.pending() == 0
