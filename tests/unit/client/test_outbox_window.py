from __future__ import annotations

import threading

import pytest

from eventplane.receipts import Receipt, digest
from eventplane_client.outbox_window import OutboxWindow


@pytest.fixture
def window() -> OutboxWindow:
    return OutboxWindow(size=3, timeout_s=5.0)


def fill(window: OutboxWindow, *payloads: bytes) -> None:
    for payload in payloads:
        assert window.add(payload, 0)


def test_each_message_is_due_once(window: OutboxWindow) -> None:
    fill(window, b"a", b"b")
    assert window.due(100.0) == [b"a", b"b"]
    assert window.due(101.0) == []
    assert window.deadline() == 105.0


@pytest.mark.source("P4", "P-W2")
def test_without_a_receipt_it_is_due_again(window: OutboxWindow) -> None:
    fill(window, b"a")
    window.due(100.0)
    fill(window, b"b")
    window.due(103.0)
    assert window.due(105.0) == [b"a"]


def test_it_asks_ever_more_rarely_until_a_receipt_comes(window: OutboxWindow) -> None:
    fill(window, b"a", b"b")
    window.due(0.0)
    assert window.due(5.0) == [b"a", b"b"]
    assert window.due(14.9) == []
    assert window.due(15.0) == [b"a", b"b"]
    window.confirm(Receipt(digest(b"a")))
    assert window.due(20.0) == [b"b"]


def test_a_receipt_ends_it(window: OutboxWindow) -> None:
    fill(window, b"a", b"b")
    window.due(100.0)
    confirmed = window.confirm(Receipt(digest(b"a"), "no_room"))
    assert confirmed is not None
    assert (confirmed.payload, confirmed.receipt) == (b"a", Receipt(digest(b"a"), "no_room"))
    assert window.confirm(Receipt(digest(b"a"))) is None
    assert window.due(200.0) == [b"b"]
    assert len(window) == 1


def test_after_a_reconnect_all_are_due_in_the_order_they_came(window: OutboxWindow) -> None:
    fill(window, b"a", b"b")
    window.due(100.0)
    window.due(105.0)
    fill(window, b"c")
    window.resend()
    assert window.due(106.0) == [b"a", b"b", b"c"]


def test_a_receipt_that_outruns_the_repetition_saves_it(window: OutboxWindow) -> None:
    fill(window, b"a", b"b")
    window.due(100.0)
    window.resend()
    window.confirm(Receipt(digest(b"a")))
    assert window.due(101.0) == [b"b"]


def test_equal_bytes_are_one_message(window: OutboxWindow) -> None:
    fill(window, b"a", b"a")
    assert len(window) == 1
    assert window.due(100.0) == [b"a"]


@pytest.mark.source("C5")
def test_there_is_no_room_beyond_the_size_until_a_receipt_comes(window: OutboxWindow) -> None:
    fill(window, b"a", b"b", b"c")
    assert not window.add(b"d", 0)
    outcome: list[bool] = []
    waiter = threading.Thread(target=lambda: outcome.append(window.add(b"d", 30) is not None))
    waiter.start()
    window.confirm(Receipt(digest(b"b")))
    waiter.join(30)
    assert outcome == [True]


def test_whoever_waits_for_the_receipts_is_woken(window: OutboxWindow) -> None:
    fill(window, b"a")
    assert not window.wait_empty(0)
    outcome: list[bool] = []
    waiter = threading.Thread(target=lambda: outcome.append(window.wait_empty(30)))
    waiter.start()
    window.confirm(Receipt(digest(b"a")))
    waiter.join(30)
    assert outcome == [True]


def test_whoever_waits_for_one_receipt_gets_it_also_when_it_was_faster(window: OutboxWindow) -> None:
    message = window.add(b"a", 0, awaited=True)
    assert message is not None
    assert window.wait_receipt(message, 0) is None
    assert message.awaited == 0
    again = window.add(b"a", 0, awaited=True)
    assert again is message
    window.confirm(Receipt(digest(b"a"), "no_room"))
    assert window.wait_receipt(message, 0) == Receipt(digest(b"a"), "no_room")


def test_closing_wakes_whoever_waits(window: OutboxWindow) -> None:
    fill(window, b"a", b"b", b"c")
    outcome: list[bool] = []
    waiters = [
        threading.Thread(target=lambda: outcome.append(window.add(b"d", 30) is not None)),
        threading.Thread(target=lambda: outcome.append(window.wait_empty(30))),
    ]
    for waiter in waiters:
        waiter.start()
    window.close()
    for waiter in waiters:
        waiter.join(30)
    assert outcome == [False, False]


def test_who_got_the_receipt_was_told_and_who_left_the_message_is_not() -> None:
    window = OutboxWindow(size=3, timeout_s=5.0)
    message = window.add(b"a", 0, awaited=True)
    assert message is not None
    confirmed = window.confirm(Receipt(digest(b"a"), "no_room"))
    assert window.wait_receipt(message, 0) == Receipt(digest(b"a"), "no_room")
    assert confirmed is message
    assert (message.awaited, message.left) == (1, False)
    window.add(b"b", 0, awaited=True)
    window.add(b"b", 0)
    both = window.confirm(Receipt(digest(b"b")))
    assert both is not None
    assert (both.awaited, both.left) == (1, True)


def test_a_new_connection_asks_as_often_as_the_first(window: OutboxWindow) -> None:
    fill(window, b"a")
    assert [window.due(now) for now in (0.0, 5.0, 15.0)] == [[b"a"]] * 3
    window.resend()
    assert [window.due(now) for now in (16.0, 21.0)] == [[b"a"]] * 2
