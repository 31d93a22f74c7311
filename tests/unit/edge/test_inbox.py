"""The deliveries to one service that are in flight, and what its receipts end."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from edge.counts import Counts
from edge.delivery_queues import UNSTORED_RANK, DeliveryQueues, VolatileEvent
from edge.inbox import InboxPump
from edge.settings import LocalSettings
from edge.spool.store import Spool
from edge.system import SYSTEM
from eventplane.contract import Priority
from eventplane.device_reports import key_digest
from eventplane.receipts import Receipt, digest
from eventplane_mqtt.link import Backoff, Link
from eventplane_mqtt.mailbox import LinkName
from tests.unit.edge.fakes import ALARM, Device, Wires, contract, event
from tests.unit.edge.spools import arrival

INBOX = contract().channel("call.inbox")
TEXT = event("fire", ALARM).json
TIMEOUT_S = 10.0


class Pump:
    """An inbox with receipts over a connection that stands; `end` commits what a receipt ended."""

    def __init__(self, path: Path, window: int = 3) -> None:
        self.wires = Wires()
        link = Link(LinkName.LOCAL, self.wires.dial, Backoff(1.0, 60.0, Random(1)), 5.0)
        link.tick(0.0)
        link.connected(link.generation, 0.0)
        self.spool = Spool(path, SYSTEM)
        self.counts = Counts()
        self.queues = DeliveryQueues(self.spool, self.counts)
        settings = LocalSettings(inbox_window=window, receipt_timeout_s=TIMEOUT_S)
        self.inbox = InboxPump(self.queues, INBOX, link, settings)

    def store(self, *texts: str, rank: int = Priority.URGENT.rank) -> None:
        first = self.spool.next_sequence
        events = [arrival(first + n, rank, (INBOX.address,), text) for n, text in enumerate(texts)]
        self.spool.commit(events, uptime_ms=0)
        self.inbox.pump(0.0)

    @property
    def published(self) -> list[str]:
        return [payload.decode() for _, _, payload in self.wires.last.published]

    def end(self, text: str) -> int:
        ended = self.inbox.receipted(Receipt(digest(text.encode())))
        self.spool.commit([], [each.delivery for each in ended], uptime_ms=0)
        self.inbox.pump(0.0)
        return len(ended)


def test_a_message_that_the_broker_refuses_is_not_delivered(device: Device) -> None:
    device.send(event("1", subject="show"))
    ((mid, *_),) = device.local.last.published[1:]
    device.turn(device.puback(mid, LinkName.LOCAL, "not authorized"))
    assert device.spool.backlog()["display.inbox"] == 1
    device.turn(device.puback(mid, LinkName.LOCAL))
    device.turn(after=61.0)
    assert device.spool.backlog()["display.inbox"] == 0


@pytest.fixture
def pump(tmp_path: Path) -> Iterator[Pump]:
    pump = Pump(tmp_path / "spool.db")
    yield pump
    pump.spool.close()


def test_a_receipt_ends_every_delivery_of_the_same_bytes(pump: Pump) -> None:
    pump.store(TEXT, TEXT, "{}", "[]")
    assert pump.published == [TEXT, TEXT, "{}"]
    assert pump.end(TEXT) == 2
    assert pump.published[3:] == ["[]"]
    assert (pump.end(TEXT), pump.end("{}"), pump.end("[]")) == (0, 1, 1)
    assert pump.spool.backlog() == {INBOX.address: 0}
    assert pump.inbox.deadline() is None


def test_so_does_the_receipt_of_an_event_in_memory_and_its_copy_in_the_spool(pump: Pump) -> None:
    unstored = VolatileEvent(INBOX.address, ALARM, TEXT, key_digest(("", "", "")), UNSTORED_RANK)
    pump.queues.send_volatile([unstored], lambda _: True)
    pump.store(TEXT)
    assert pump.published == [TEXT, TEXT]
    ended = pump.inbox.receipted(Receipt(digest(TEXT.encode())))
    stored = pump.queues.delivered(each.delivery for each in ended)
    assert [each.rank for each in stored] == [0]
    assert pump.counts.sent_unstored == 1


def test_what_shares_its_bytes_is_sent_again_together(pump: Pump) -> None:
    pump.store(TEXT, TEXT)
    pump.inbox.tick(10.0)
    pump.inbox.pump(10.0)
    assert pump.published == [TEXT] * 4
    assert pump.end(TEXT) == 2


@pytest.mark.parametrize(
    ("priority", "tried_s"),
    [(Priority.URGENT, (10, 30, 60, 90, 120, 150)), (Priority.NORMAL, (10, 30, 70, 150, 310, 630))],
)
def test_an_alarm_is_sent_again_soon(pump: Pump, priority: Priority, tried_s: tuple[float, ...]) -> None:
    pump.store(TEXT, rank=priority.rank)
    for now in tried_s:
        assert pump.inbox.deadline() == now
        pump.inbox.tick(now)
        pump.inbox.pump(now)
    pump.inbox.rewind()
    pump.inbox.pump(1_000.0)
    assert pump.inbox.deadline() == 1_000.0 + TIMEOUT_S  # over a new connection as at first
