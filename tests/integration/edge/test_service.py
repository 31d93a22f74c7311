"""The transport of a service against a real broker; the test plays the forwarder."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from eventplane.conversation.messages import Replier, Reply, Status, write_reply
from eventplane.conversation.questions import HandlersAnswer, read_handlers_question, write_handlers_answer
from eventplane.envelope import Envelope, Sender, parse_event, write_event
from eventplane.guarantee import DELIVERY_GUARANTEE
from eventplane.receipts import SPOOL_FULL, Receipt, digest, write_receipts
from eventplane.topics import handlers_answer_topic, handlers_topic, local_topic, receipt_topic
from eventplane_client import mqtt
from eventplane_client.errors import (
    ClosedError,
    FlushTimeoutError,
    MessageTooLargeError,
    NoRoomError,
    ReceiptTimeoutError,
    RequestDroppedError,
    StateTimeoutError,
    WindowFullError,
)
from eventplane_client.mqtt import MAX_MESSAGE_BYTES, MqttTransport
from lab.mosquitto import Broker
from tests.integration.edge.conftest import SECONDS, THING, wait_for
from tests.integration.mqtt import TestClient
from tests.unit.eventplane.conversation.worlds import ask

EVENT = write_event({"id": "1", "source": "/app", "type": "org.eventplane.setting.v1"}, {"c": 21})


@pytest.fixture
def sensor(request: pytest.FixtureRequest) -> str:
    """A service of the test's own at the broker that all tests here share."""
    return str(request.node.name).partition("[")[0].replace("_", "-")[:60]


@pytest.fixture
def outbox(sensor: str) -> str:
    return local_topic(sensor, "outbox")


@pytest.fixture
def forwarder(shared_broker: Broker, outbox: str) -> Iterator[TestClient]:
    """Who reads the outbox."""
    with TestClient(f"forwarder of {outbox}", "127.0.0.1", shared_broker.port) as client:
        client.subscribe(outbox)
        yield client


def test_without_an_answer_it_says_so(shared_broker: Broker, sensor: str) -> None:
    client = MqttTransport(sensor, port=shared_broker.port, window=2)
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
        with pytest.raises(StateTimeoutError, match="a/b/c"):
            client.state("a/b/c", timeout_s=0.1)
    for call in (
        lambda: client.put(b"4", 1),
        lambda: client.send(b"4"),
        lambda: client.flush(1),
        lambda: client.state("a/b/c", 1),
    ):
        with pytest.raises(ClosedError):
            call()


def test_the_largest_passes(shared_broker: Broker, sensor: str, outbox: str, forwarder: TestClient) -> None:
    largest = b"x" * MAX_MESSAGE_BYTES
    with closing(MqttTransport(sensor, port=shared_broker.port)) as client:
        with pytest.raises(MessageTooLargeError):
            client.send(largest + b"x")
        client.send(largest)
        wait_for(lambda: (outbox, largest) in forwarder.messages)


@pytest.mark.source("P-W5", "C10")
def test_it_publishes_again(shared_broker: Broker, sensor: str, outbox: str, forwarder: TestClient) -> None:
    with closing(MqttTransport(sensor, port=shared_broker.port, receipt_timeout_s=0.2)) as client:
        client.send(b"once more")
        wait_for(lambda: forwarder.messages.count((outbox, b"once more")) >= 2)
        forwarder.publish(receipt_topic(sensor, "outbox"), b"nonsense")
        forwarder.publish(receipt_topic(sensor, "outbox"), write_receipts([Receipt(digest(b"once more"))]))
        client.flush(SECONDS)
        assert client.waiting == 0

    def lasting() -> TestClient:
        # Its session outlives the restart: what the client repeats at once must find a subscriber.
        return TestClient("lasting", "127.0.0.1", shared_broker.port, persistent=True)

    with lasting() as listener:
        listener.subscribe(outbox)
    with closing(MqttTransport(sensor, port=shared_broker.port, receipt_timeout_s=600)) as client:
        client.send(b"hello")
        with lasting() as listener:
            wait_for(lambda: (outbox, b"hello") in listener.messages)
        shared_broker.child.restart()
        with lasting() as listener:
            wait_for(lambda: (outbox, b"hello") in listener.messages)


class FullForwarder:
    """Has no room for the first `refusals` requests, and confirms nothing unless it `confirms`.

    The lamp handles everything, and replies to what is confirmed.
    """

    def __init__(self, line: TestClient, service: str) -> None:
        self.requests: list[Envelope] = []
        self.refusals = 0
        self.confirms = True
        self._line = line
        self._service = service
        line.subscribe(handlers_topic(service))

    def serve(self, is_done: Callable[[], bool]) -> None:
        wait_for(lambda: self._serve_all() or is_done())

    def _serve_all(self) -> None:
        messages = self._line.messages
        while messages:
            topic, payload = messages.pop(0)
            if topic == handlers_topic(self._service):
                id = read_handlers_question(payload, "").id
                answer = write_handlers_answer(HandlersAnswer(id, THING, ("lamp",), comes_again=False))
                assert self._line.publish(handlers_answer_topic(self._service), answer)
            elif self.confirms:
                self._confirm(payload)

    def _confirm(self, payload: bytes) -> None:
        self.requests.append(parse_event(payload))
        has_room = len(self.requests) > self.refusals
        receipt = Receipt(digest(payload), None if has_room else SPOOL_FULL)
        assert self._line.publish(receipt_topic(self._service, "outbox"), write_receipts([receipt]))
        if has_room and "replyto" in self.requests[-1].attributes:
            reply = Reply(Replier("lamp"), Status.HANDLED, "done")
            sent = write_reply(self.requests[-1], reply, "2026-01-01T00:00:00Z")
            sent = sent.stamped(**Sender(service="lamp").attributes)
            assert self._line.publish(local_topic(self._service, "replies"), sent.json.encode())


@pytest.mark.source("C6", "N2")
@pytest.mark.parametrize("durable", [True, False])
def test_a_request_waits_for_room_in_spool_and_window_until_its_timeout(
    shared_broker: Broker,
    sensor: str,
    forwarder: TestClient,
    durable: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mqtt, "_ROOM_S", 0.2)
    full = FullForwarder(forwarder, sensor)
    with (
        closing(MqttTransport(sensor, port=shared_broker.port, window=1, receipt_timeout_s=0.2)) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        full.refusals = 2
        asking = pool.submit(client.request, ask("r"), SECONDS, durable=durable)
        full.serve(asking.done)
        assert asking.result()["lamp"].answer == "done"
        # Refused twice; a slow machine repeats it once more where the answer takes longer than the timeout.
        assert [each.id for each in full.requests][:3] == ["r", "r", "r"]
        guarantees = {each.attributes.get(DELIVERY_GUARANTEE) for each in full.requests}
        assert guarantees == {None if durable else "best_effort"}

        full.refusals = 10**9
        asking = pool.submit(client.request, ask("no room"), 2.0, durable=durable)
        full.serve(asking.done)
        with pytest.raises(NoRoomError if durable else RequestDroppedError, match="no room for"):
            asking.result()
        assert client.waiting == 0

        full.confirms, full.refusals = False, 0
        client.send(EVENT)
        asking = pool.submit(client.request, ask("r"), 1.0, durable=durable)
        full.serve(asking.done)
        with pytest.raises(WindowFullError if durable else RequestDroppedError):
            asking.result()
        asking = pool.submit(client.request, ask("waits"), SECONDS, durable=durable)
        full.confirms = True
        full.serve(asking.done)
        assert asking.result()["lamp"].answer == "done"
