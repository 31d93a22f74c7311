"""The transport over MQTT, without a broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eventplane.receipts import Receipt
from eventplane_client.device.outbox_window import OutboxWindow
from eventplane_client.errors import RefusedError, UnroutedError
from eventplane_client.mqtt import MqttTransport
from eventplane_client.ports import Message
from tests.unit.client.worlds import event

SERVICE = "voice-service"


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


@pytest.mark.source("C4")
@pytest.mark.parametrize("refused", [None, "expired"])
def test_each_copy_of_a_message_is_confirmed_with_the_reason(
    transport: MqttTransport, refused: str | None
) -> None:
    told: list[str | None] = []

    def confirm(refused: str | None = None, /) -> None:
        told.append(refused)

    for _ in range(2):
        transport._deliver(b"one", confirm)
    (message,) = transport.receive(10, 0)
    assert isinstance(message, Message)
    transport.acknowledge([message], refused=refused)
    assert told == [refused, refused]
