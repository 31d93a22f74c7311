"""How much of the spool a cursor keeps in memory."""

from __future__ import annotations

from edge.delivery_queues import DeliveryCursor
from edge.spool import READ_CHARACTERS
from tests.unit.edge.fakes import MakeDevice, event

LARGE = "x" * 60_000


def test_a_backlog_of_large_events_is_read_by_text_however_often_a_window_of_them_is_wanted(
    make: MakeDevice,
) -> None:
    device = make(connected=False)
    for number in range(60):
        device.send(event(f"e{number}", subject=LARGE))
    cursor = DeliveryCursor(device.spool, "device.outbox", 1)
    sizes = []
    for _ in range(20):
        cursor.fill(500)
        sizes.append(sum(len(each.json) for each in cursor.ahead(500)))
    assert READ_CHARACTERS <= sizes[-1] <= READ_CHARACTERS + len(LARGE) + 1_000
    assert cursor.more
