"""The transport of a service against a real broker, with nobody behind it who writes receipts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from eventplane.conversation.questions import StateAnswer, read_state_question, write_state_answer
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.envelope import Envelope, write_event
from eventplane.receipts import Receipt, digest, read_receipts, write_receipts
from eventplane.topics import local_topic, receipt_topic, state_answer_topic, state_topic
from eventplane_client import reader
from eventplane_client.errors import (
    ClientError,
    ClosedError,
    FlushTimeoutError,
    MessageTooLargeError,
    NoRoomError,
    ReceiptTimeoutError,
    RefusedError,
    StateTimeoutError,
    WindowFullError,
)
from eventplane_client.mqtt import MAX_MESSAGE_BYTES, MqttTransport
from local.mosquitto import Broker
from local.services import Service
from tests.integration.edge.conftest import SECONDS, wait_for
from tests.integration.mqtt import TestClient

OUTBOX = local_topic("sensor", "outbox")
EVENT = write_event({"id": "1", "source": "/app", "type": "org.eventplane.setting.v1"}, {"c": 21})


@pytest.fixture
def broker(mosquitto: Callable[[str], Broker]) -> Broker:
    return mosquitto("home")


def test_without_receipts_it_says_so(broker: Broker) -> None:
    client = MqttTransport("sensor", port=broker.port, window=2)
    with closing(client):
        client.send(b"1")
        client.send(b"2")
        with pytest.raises(ReceiptTimeoutError):
            client.put(b"2", timeout_s=0.1)
        with pytest.raises(WindowFullError) as full:
            client.send(b"3", timeout_s=0.1)
        assert full.value.waiting == 2
        with pytest.raises(FlushTimeoutError) as late:
            client.flush(0.1)
        assert late.value.waiting == 2
    for call in (lambda: client.put(b"4", 1), lambda: client.send(b"4"), lambda: client.flush(1)):
        with pytest.raises(ClosedError):
            call()


def test_a_question_for_a_state_is_asked_until_somebody_answers(broker: Broker) -> None:
    questions, answers = state_topic("sensor"), state_answer_topic("sensor")
    with closing(MqttTransport("sensor", port=broker.port, receipt_timeout_s=0.05)) as client:
        with pytest.raises(StateTimeoutError) as late:
            client.state("a/b/c", timeout_s=0.1)
        assert late.value.key == "a/b/c"
        with TestClient("forwarder", "127.0.0.1", broker.port) as forwarder:
            forwarder.subscribe(questions)
            asking = threading.Thread(target=lambda: found.append(client.state("a/b/c", SECONDS)))
            found: list[Envelope | None] = []
            asking.start()
            wait_for(lambda: len(forwarder.messages) >= 2)
            question = read_state_question(forwarder.messages[-1][1], "")
            for payload in (b"garbage", write_state_answer(StateAnswer("another", None))):
                assert forwarder.publish(answers, payload)
            assert forwarder.publish(answers, write_state_answer(StateAnswer(question.id, EVENT.json)))
            asking.join(SECONDS)
        assert found == [EVENT]
    with pytest.raises(ClosedError):
        client.state("a/b/c", 1)


def test_the_largest_message_that_it_takes_passes_the_broker_and_a_larger_one_is_refused(
    broker: Broker,
) -> None:
    largest = b"x" * MAX_MESSAGE_BYTES
    with (
        TestClient("forwarder", "127.0.0.1", broker.port) as forwarder,
        closing(MqttTransport("sensor", port=broker.port)) as client,
    ):
        forwarder.subscribe(OUTBOX)
        with pytest.raises(MessageTooLargeError):
            client.send(largest + b"x")
        client.send(largest)
        wait_for(lambda: (OUTBOX, largest) in forwarder.messages)


@pytest.mark.source("P-W5")
def test_put_returns_with_the_receipt_and_raises_what_it_says(broker: Broker) -> None:
    answers: dict[bytes, str | None] = {b"kept": None, b"no room": "spool_full", b"garbage": "not_json"}
    outcomes: dict[bytes, Exception | None] = {}
    refused: list[bytes] = []

    def put(payload: bytes) -> None:
        try:
            client.put(payload, SECONDS)
        except ClientError as error:
            outcomes[payload] = error
        else:
            outcomes[payload] = None

    with (
        TestClient("forwarder", "127.0.0.1", broker.port) as forwarder,
        closing(
            MqttTransport(
                "sensor",
                port=broker.port,
                receipt_timeout_s=0.2,
                on_refused=lambda payload, _: refused.append(payload),
            )
        ) as client,
    ):
        forwarder.subscribe(OUTBOX)
        threads = [threading.Thread(target=put, args=(payload,)) for payload in answers]
        for thread in threads:
            thread.start()
        wait_for(lambda: {payload for _, payload in forwarder.messages} == set(answers))
        assert outcomes == {}  # it waits for the receipt, not for the broker
        receipts = [Receipt(digest(payload), answer) for payload, answer in answers.items()]
        forwarder.publish(receipt_topic("sensor", "outbox"), write_receipts(receipts))
        for thread in threads:
            thread.join(SECONDS)
    assert outcomes[b"kept"] is None
    assert isinstance(outcomes[b"no room"], NoRoomError)
    garbage = outcomes[b"garbage"]
    assert isinstance(garbage, RefusedError)
    assert garbage.reason == "not_json"
    assert refused == []


@pytest.mark.source("P-W5")
def test_it_publishes_again_until_the_receipt_comes(broker: Broker) -> None:
    with (
        TestClient("forwarder", "127.0.0.1", broker.port) as forwarder,
        closing(MqttTransport("sensor", port=broker.port, receipt_timeout_s=0.2)) as client,
    ):
        forwarder.subscribe(OUTBOX)
        client.send(b"once more")
        wait_for(lambda: forwarder.messages.count((OUTBOX, b"once more")) >= 2)
        forwarder.publish(receipt_topic("sensor", "outbox"), b"nonsense")
        forwarder.publish(receipt_topic("sensor", "outbox"), write_receipts([Receipt(digest(b"once more"))]))
        client.flush(SECONDS)
        assert client.waiting == 0


@pytest.mark.source("C10")
def test_after_a_restart_of_the_broker_it_publishes_again(broker: Broker) -> None:
    def forwarder() -> TestClient:
        return TestClient("forwarder", "127.0.0.1", broker.port, persistent=True)

    with forwarder() as listener:
        listener.subscribe(OUTBOX)
    with closing(MqttTransport("sensor", port=broker.port, receipt_timeout_s=600)) as client:
        client.send(b"hello")
        with forwarder() as listener:
            wait_for(lambda: (OUTBOX, b"hello") in listener.messages)
        broker.child.restart()
        with forwarder() as listener:
            wait_for(lambda: (OUTBOX, b"hello") in listener.messages)


@pytest.mark.source("P6", "C-W1")
def test_it_confirms_what_its_handler_has_done_and_refuses_what_is_no_event(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_PUT_S", 0.1)  # nobody confirms the dead letter
    handled: list[str] = []
    receipts_to = receipt_topic("call", "inbox")
    good = write_event({"id": "1", "source": "/s", "type": "t"}).json.encode()
    service = Service("call", broker.port, lambda event: handled.append(event.id))
    with TestClient("forwarder", "127.0.0.1", broker.port) as forwarder, closing(service):
        forwarder.subscribe(receipts_to)
        forwarder.subscribe(local_topic("call", "outbox"))
        service.send_bytes(b"ready", SECONDS)
        wait_for(lambda: (local_topic("call", "outbox"), b"ready") in forwarder.messages)
        for payload in (b"garbage", good):
            forwarder.publish(local_topic("call", "inbox"), payload)
        wait_for(lambda: sum(topic == local_topic("call", "outbox") for topic, _ in forwarder.messages) >= 2)
        letter = forwarder.messages[-1][1] if DEAD_LETTER_TYPE.encode() in forwarder.messages[-1][1] else b""
        wait_for(lambda: any(topic == receipts_to for topic, _ in forwarder.messages))
    receipts = [
        each for topic, sent in forwarder.messages if topic == receipts_to for each in read_receipts(sent)
    ]
    assert Receipt(digest(good)) in receipts
    assert handled == ["1"]
    assert letter


def test_a_refusal_is_told_to_who_waits_and_to_who_left_it_to_the_client(broker: Broker) -> None:
    refused: list[tuple[bytes, str]] = []
    with (
        TestClient("forwarder", "127.0.0.1", broker.port) as forwarder,
        closing(
            MqttTransport("sensor", port=broker.port, on_refused=lambda *told: refused.append(told))
        ) as client,
    ):
        forwarder.subscribe(OUTBOX)
        client.send(b"same")
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(client.put, b"same", SECONDS)
            wait_for(lambda: client._window._waiting[digest(b"same")].awaited == 1)
            receipts = write_receipts([Receipt(digest(b"same"), "unrouted")])
            wait_for(lambda: (OUTBOX, b"same") in forwarder.messages)
            forwarder.publish(receipt_topic("sensor", "outbox"), receipts)
            with pytest.raises(RefusedError):
                waiting.result(SECONDS)
        wait_for(lambda: refused == [(b"same", "unrouted")])
