"""The transport over MQTT, without a broker."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from eventplane.conversation.messages import Replier
from eventplane.conversation.open_requests import Circuit, CircuitChanged
from eventplane.envelope import Envelope
from eventplane.receipts import Receipt, digest
from eventplane_client import Client, Inbox, connect
from eventplane_client.connection import memory_plane
from eventplane_client.errors import (
    ClosedError,
    FlushTimeoutError,
    NotRegisteredError,
    RefusedError,
    UnroutedError,
)
from eventplane_client.memory import MemoryPlane, MemorySubscriptions, MemoryTransport
from eventplane_client.memory_duplicates import MemoryFilter
from eventplane_client.mqtt import MqttTransport
from eventplane_client.mqtt_loop import CallbackThread
from eventplane_client.notices import Notice, Refused
from eventplane_client.outbox_window import OutboxWindow
from eventplane_client.ports import Message, Verdict
from eventplane_mqtt.mailbox import LinkName, Received
from tests.eventually import eventually
from tests.unit.client.worlds import event

SERVICE = "voice-service"
SECONDS = 30.0


@pytest.fixture
def transport() -> Iterator[MqttTransport]:
    it = MqttTransport(SERVICE, "127.0.0.1", 1, max_receives=5)
    yield it
    it.close()


@pytest.mark.source("F5")
@pytest.mark.parametrize(
    ("reason", "error"), [("unrouted", UnroutedError), ("sender_not_allowed", RefusedError)]
)
def test_what_the_forwarder_refuses_has_a_name(
    transport: MqttTransport, monkeypatch: pytest.MonkeyPatch, reason: str, error: type[RefusedError]
) -> None:
    monkeypatch.setattr(OutboxWindow, "wait_receipt", lambda *_: Receipt("", reason))
    with pytest.raises(RefusedError) as wrong:
        transport.put(event(), 1, durable=True)
    assert (type(wrong.value), wrong.value.reason) == (error, reason)
    monkeypatch.setattr(OutboxWindow, "wait_receipt", lambda *_: Receipt("", "unknown_channel"))
    with pytest.raises(NotRegisteredError, match="no such participant"):
        transport.put(event(), 1, durable=True)


@pytest.mark.parametrize("transport", ["mqtt://127.0.0.1:1", "memory:closed-while-reading"])
@pytest.mark.parametrize("read", [lambda inbox: inbox.handle(print), list], ids=["handle", "iterate"])
def test_closing_ends_a_reading_thread(transport: str, read: Callable[[Inbox], object]) -> None:
    client = connect(transport, SERVICE, state="memory:")
    inbox = client.subscribe()
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read, inbox)
        client.close()
        assert not reading.result(30)


def test_a_claim_during_close_is_given_back() -> None:
    calls: list[str] = []
    claiming, go_on = threading.Event(), threading.Event()

    class Slow(MemoryFilter):
        def claim(self, *args: Any, **more: Any) -> list[Verdict]:
            claiming.set()
            assert go_on.wait(SECONDS)
            calls.append("claim")
            return super().claim(*args, **more)

        def release(self, keys: Sequence[bytes]) -> None:
            calls.append("release")

        def close(self) -> None:
            calls.append("close")

    plane = MemoryPlane()
    plane.deliver(SERVICE, event("ring"))
    client = Client(SERVICE, MemoryTransport(plane, SERVICE), Slow, MemorySubscriptions(plane, SERVICE))
    inbox = client.subscribe()
    with ThreadPoolExecutor(2) as pool:
        done = pool.submit(inbox.handle, lambda _: calls.append("handle"))
        assert claiming.wait(SECONDS)
        closing = pool.submit(client.close)
        assert eventually(lambda: inbox._closed, SECONDS)
        go_on.set()
        assert done.result(SECONDS) is closing.result(SECONDS) is None
    assert calls[:2] == ["claim", "release"]
    assert len(plane.take(SERVICE, 10, 0)) == 1


def test_what_is_closed_in_hand_comes_again() -> None:
    plane = memory_plane("closed-while-handled")
    plane.subscribe(SERVICE, "inbox", None)
    client = connect("memory:closed-while-handled", SERVICE)
    handling, closed = threading.Event(), threading.Event()

    def handle(_event: Envelope) -> None:
        handling.set()
        assert closed.wait(30)

    with ThreadPoolExecutor(1) as pool, connect("memory:closed-while-handled", "bell") as bell:
        done = pool.submit(client.subscribe().handle, handle)
        bell.put(event("ring"))
        assert handling.wait(30)
        client.close()
        closed.set()
        assert done.result(30) is None
    with connect("memory:closed-while-handled", SERVICE) as again:
        assert again.subscribe().get(30).id == "ring"


def test_a_late_refusal_is_a_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    notices: list[Notice] = []
    with connect("mqtt://127.0.0.1:1", SERVICE, state="memory:", on_notice=notices.append) as client:
        client.send(event("stored"))
        client.send(event("refused", type="t"))
        transport = client._transport  # type: ignore[attr-defined]
        transport._window.add(event("awaited").json.encode(), 0, awaited=True)
        with pytest.raises(FlushTimeoutError):
            client.flush(0)
        # Who waits for a receipt gets it, and no notice.
        for name, reason in (("stored", None), ("awaited", "unrouted"), ("refused", "unrouted")):
            (payload,) = (
                each.payload
                for each in transport._window._waiting.values()
                if f'"{name}"' in each.payload.decode()
            )
            transport._loop._take_receipts([Receipt(digest(payload), reason)])
        client.flush(30)
        assert eventually(lambda: bool(notices), 30)
    assert [(each.id, each.reason) for each in notices if isinstance(each, Refused)] == [
        ("refused", "unrouted")
    ]
    for call in (lambda: client.send(event("late")), lambda: client.flush(0)):
        with pytest.raises(ClosedError):
            call()


def test_waiting_callbacks_are_called_at_close(caplog: pytest.LogCaptureFixture) -> None:
    def wait() -> None:
        begun.set()
        assert go_on.wait(SECONDS)

    called: list[float] = []
    for timeout_s in (SECONDS, 0):
        callbacks, begun, go_on = CallbackThread("callbacks"), threading.Event(), threading.Event()
        for job in (wait, partial(called.append, timeout_s), partial(called.append, timeout_s)):
            callbacks.submit(job)
        assert begun.wait(SECONDS)
        if timeout_s:
            go_on.set()
        callbacks.close(timeout_s)
        go_on.set()
    assert called == [SECONDS, SECONDS]
    (line,) = caplog.messages
    assert "3 callback(s) did not end in 0 s: flush before close" in line


def test_peer_changes_are_called_back() -> None:
    changes: list[CircuitChanged] = []

    def listen(change: CircuitChanged) -> None:
        changes.append(change)
        raise RuntimeError("what listeners do must not end the client")

    expected = [CircuitChanged(Replier("lamp"), each) for each in (Circuit.OPEN, Circuit.HALF_OPEN)]
    with closing(MqttTransport(SERVICE, "127.0.0.1", 1, on_peer=listen)) as transport:
        for each in expected:
            transport._report_peer(each)
    assert changes == expected


@pytest.mark.source("C4")
@pytest.mark.parametrize("refused", [None, "expired"])
def test_copies_are_all_confirmed(
    transport: MqttTransport, monkeypatch: pytest.MonkeyPatch, refused: str | None
) -> None:
    told: list[tuple[int, str | None]] = []
    monkeypatch.setattr(
        transport._loop, "confirm", lambda copy, receipt: told.append((copy.mid, receipt.refused))
    )
    for mid in (1, 2):
        transport._deliver(Received(LinkName.LOCAL, 1, mid, "inbox", b"one"))
    (message,) = transport.receive(10, 0)
    assert isinstance(message, Message)
    transport.acknowledge([message], refused=refused)
    assert told == [(1, refused), (2, refused)]
