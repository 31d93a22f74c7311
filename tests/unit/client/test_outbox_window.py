"""Messages without a receipt: which are due when, and the threads that wait for room or for a receipt."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from eventplane.receipts import Receipt, digest
from eventplane_client.outbox_window import OutboxWindow

SECONDS = 30


@pytest.fixture
def window() -> OutboxWindow:
    return OutboxWindow(size=3, timeout_s=5.0)


def fill(window: OutboxWindow, *payloads: bytes) -> None:
    for payload in payloads:
        assert window.add(payload, 0)


@pytest.mark.source("P4", "P-W2")
def test_a_message_is_due_at_once_and_again_without_a_receipt(window: OutboxWindow) -> None:
    fill(window, b"a")
    assert window.due(100.0) == [b"a"]
    fill(window, b"b", b"b")  # equal bytes are one message
    assert (window.due(103.0), len(window)) == ([b"b"], 2)
    assert (window.due(104.0), window.deadline()) == ([], 105.0)
    assert window.due(105.0) == [b"a"]


def test_it_is_sent_ever_more_rarely_until_a_receipt_comes(window: OutboxWindow) -> None:
    fill(window, b"a", b"b")
    assert window.due(0.0) == window.due(5.0) == [b"a", b"b"]
    assert window.due(14.9) == []
    assert window.due(15.0) == [b"a", b"b"]
    confirmed = window.confirm(Receipt(digest(b"a"), "no_room"))
    assert (confirmed.payload, confirmed.receipt) == (b"a", Receipt(digest(b"a"), "no_room"))
    assert window.confirm(Receipt(digest(b"a"))) is None
    assert window.due(20.0) == [b"b"]


def test_a_new_connection_resends_in_order(window: OutboxWindow) -> None:
    fill(window, b"a", b"b")
    for now in (0.0, 5.0, 15.0):
        assert window.due(now) == [b"a", b"b"]
    fill(window, b"c")
    window.resend()
    assert window.due(16.0) == [b"a", b"b", b"c"]
    assert window.due(21.0) == [b"a", b"b", b"c"]
    window.resend()
    window.confirm(Receipt(digest(b"a")))  # outran its repetition
    assert window.due(22.0) == [b"b", b"c"]


def add_one_more(window: OutboxWindow) -> bool:
    return window.add(b"d", SECONDS) is not None


def wait_empty(window: OutboxWindow) -> bool:
    return window.wait_empty(SECONDS)


def wait_receipt(window: OutboxWindow) -> bool:
    message = window.add(b"a", 0, awaited=True)
    assert message is not None
    return window.wait_receipt(message, SECONDS) is not None


@pytest.mark.source("C5")
@pytest.mark.parametrize(
    ("payloads", "wait"),
    [((b"a", b"b", b"c"), add_one_more), ((b"a",), wait_empty), ((b"a",), wait_receipt)],
    ids=["room", "all receipts", "one receipt"],
)
@pytest.mark.parametrize("is_closed", [False, True])
def test_waiters_are_woken(
    window: OutboxWindow, payloads: tuple[bytes, ...], wait: Callable[[OutboxWindow], bool], is_closed: bool
) -> None:
    fill(window, *payloads)
    assert not window.wait_empty(0)
    assert (window.add(b"d", 0) is None) is (len(payloads) == 3)
    if len(payloads) < 3:
        window.confirm(Receipt(digest(b"d")))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait, window)
        window.close() if is_closed else window.confirm(Receipt(digest(b"a")))
        assert waiting.result(SECONDS) is not is_closed


def test_what_is_withdrawn_is_not_sent_and_makes_room(window: OutboxWindow) -> None:
    fill(window, b"a", b"b")
    message = window.add(b"c", 0, awaited=True)
    assert message is not None
    assert not window.withdraw(message)
    assert window.due(1.0) == [b"a", b"b"]
    fill(window, b"c")
    assert window.due(2.0) == [b"c"]
    sent = window.add(b"c", 0)
    assert sent is not None
    assert window.withdraw(sent)
    assert window.due(6.0) == [b"a", b"b"]


def test_who_waits_for_a_receipt_gets_it_also_when_it_came_first(window: OutboxWindow) -> None:
    message = window.add(b"a", 0, awaited=True)
    assert message is not None
    assert window.wait_receipt(message, 0) is None
    assert message.awaited == 0
    assert window.add(b"a", 0, awaited=True) is message
    assert window.confirm(Receipt(digest(b"a"), "no_room")) is message
    assert window.wait_receipt(message, 0) == Receipt(digest(b"a"), "no_room")
    assert (message.awaited, message.left) == (1, False)
    # Of two callers one waits; the other has to be told in another way.
    window.add(b"b", 0, awaited=True)
    window.add(b"b", 0)
    both = window.confirm(Receipt(digest(b"b")))
    assert (both.awaited, both.left) == (1, True)
