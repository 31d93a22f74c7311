"""What a loop reads first, how much of it, and when a connection stops reading."""

import os
import signal
import threading
from collections.abc import Callable

import pytest

from eventplane_mqtt.mailbox import (
    BATCH_BYTES,
    OVERHEAD_BYTES,
    Acknowledged,
    Connected,
    LinkName,
    Mailbox,
    Message,
    Received,
    Share,
)

LOCAL, URGENT, CLOUD = LinkName.LOCAL, LinkName.URGENT, LinkName.CLOUD
ACKNOWLEDGED, CONNECTED = Acknowledged(CLOUD, 1, 1), Connected(CLOUD, 1)
LIMIT = 8 * BATCH_BYTES
LARGE = bytes(64 * 1024 - OVERHEAD_BYTES - 1)
"""With the topic `t` a message of 64 KiB, eight of which are a batch."""
FOREVER_S = 60.0
"""Longer than the suite waits for a test: what waits so long hangs."""


@pytest.fixture
def mailbox() -> Mailbox[Message]:
    return Mailbox()


def message(link: LinkName, number: int, payload: bytes = b"") -> Received:
    return Received(link, 1, number, "t", payload)


def fill(share: Share, link: LinkName, count: int, payload: bytes = b"") -> list[Received]:
    messages = [message(link, number, payload) for number in range(1, count + 1)]
    share.put(messages)
    return messages


def of(link: LinkName, batch: list[Message]) -> list[Message]:
    return [each for each in batch if isinstance(each, Received) and each.link is link]


def test_an_urgent_flood_leaves_a_part_of_each_batch_to_the_other_links(mailbox: Mailbox[Message]) -> None:
    fill(mailbox.share(URGENT, LIMIT), URGENT, 5_000)
    fill(mailbox.share(LOCAL, LIMIT), LOCAL, 5_000)
    fill(mailbox.share(CLOUD, LIMIT), CLOUD, 5_000)
    batch = mailbox.wait(0)
    assert len(of(URGENT, batch)) == 750
    assert len(of(LOCAL, batch)) == len(of(CLOUD, batch)) == 125


def test_links_share_a_batch_by_bytes_not_by_messages(mailbox: Mailbox[Message]) -> None:
    fill(mailbox.share(LOCAL, LIMIT), LOCAL, 5_000, bytes(1024 - OVERHEAD_BYTES - 1))
    fill(mailbox.share(CLOUD, LIMIT), CLOUD, 50, LARGE)
    batch = mailbox.wait(0)
    assert len(of(LOCAL, batch)) == 256
    assert len(of(CLOUD, batch)) == 4


def test_a_full_share_stops_its_connection_until_it_is_half_empty() -> None:
    share = Share(LOCAL, 8 * 64 * 1024, lambda _: None)
    resumed: list[str] = []

    def resume() -> None:
        resumed.append("resumed")

    for _ in range(8):
        assert share.may_read(resume)
        fill(share, LOCAL, 1, LARGE)
    assert not share.may_read(resume)
    assert not share.may_read(resume)
    assert (share.room, share.pauses) == (0, 1)
    share.take(3 * 64 * 1024, 1_000)
    assert resumed == []
    share.take(64 * 1024, 1_000)
    assert resumed == ["resumed"]
    assert share.may_read(resume)


def test_the_share_of_a_link_with_acknowledgements_is_always_read(mailbox: Mailbox[Message]) -> None:
    share = mailbox.share(CLOUD, 1_000)
    fill(share, CLOUD, 10)
    assert share.room == 0
    assert share.may_read(lambda: None)


@pytest.mark.parametrize(("link", "part"), [(LOCAL, 2), (URGENT, 8)])
def test_qos_0_leaves_the_larger_part_of_the_share_to_qos_1(link: LinkName, part: int) -> None:
    share = Share(link, 16 * 64 * 1024, lambda _: None)
    fill(share, link, 16 // part, LARGE)
    assert (share.room_for_qos_0, share.room) == (0, (16 - 16 // part) * 64 * 1024)


def test_a_put_of_another_thread_ends_the_wait(mailbox: Mailbox[Message]) -> None:
    share = mailbox.share(LOCAL, LIMIT)
    for put in (lambda: mailbox.put(CONNECTED), lambda: fill(share, LOCAL, 1)):
        thread = threading.Thread(target=put)
        thread.start()
        assert len(mailbox.wait(FOREVER_S)) == 1
        thread.join()


def test_a_signal_handler_may_put_at_any_time(mailbox: Mailbox[Message]) -> None:
    share = mailbox.share(LOCAL, LIMIT)
    before = signal.signal(signal.SIGUSR1, lambda *_: mailbox.put(CONNECTED))
    try:
        with share._lock:  # as if it came while the loop takes messages
            signal.raise_signal(signal.SIGUSR1)
        assert mailbox.wait(FOREVER_S) == [CONNECTED]
        threading.Timer(0.01, os.kill, [os.getpid(), signal.SIGUSR1]).start()
        assert mailbox.wait(FOREVER_S) == [CONNECTED]
    finally:
        signal.signal(signal.SIGUSR1, before)


class Control:
    """The mailbox' queue; when the loop waits in it for the first time, `meanwhile` happens."""

    def __init__(self, mailbox: Mailbox[Message], meanwhile: Callable[[], object]) -> None:
        self._queue = mailbox._control
        self._meanwhile: Callable[[], object] | None = meanwhile
        mailbox._control = self  # type: ignore[assignment]

    def get(self, timeout: float) -> object:
        if (happen := self._meanwhile) is not None:
            self._meanwhile = None
            happen()
        return self._queue.get(timeout=timeout)

    def __getattr__(self, name: str) -> object:
        return getattr(self._queue, name)


@pytest.mark.parametrize("ending", ["control", "urgent", "full batch"])
def test_lingering_ends_at_once_for_what_must_not_wait(mailbox: Mailbox[Message], ending: str) -> None:
    local, urgent = mailbox.share(LOCAL, LIMIT), mailbox.share(URGENT, LIMIT)
    fill(local, LOCAL, 1)

    def end() -> None:
        match ending:
            case "control":
                mailbox.put(CONNECTED)
            case "urgent":
                fill(urgent, URGENT, 1)
            case _:
                fill(local, LOCAL, 8, LARGE)

    Control(mailbox, end)
    assert len(mailbox.wait(FOREVER_S, linger_s=2 * FOREVER_S)) >= 2


def test_lingering_gathers_messages(mailbox: Mailbox[Message]) -> None:
    share = mailbox.share(LOCAL, LIMIT)
    mailbox.put(ACKNOWLEDGED)
    messages = fill(share, LOCAL, 1)

    def put_more() -> None:
        share.put(messages)
        mailbox.put(ACKNOWLEDGED)

    Control(mailbox, put_more)
    assert mailbox.wait(FOREVER_S, linger_s=0.2) == [ACKNOWLEDGED, ACKNOWLEDGED, *messages * 2]


def test_drops_are_reported_by_powers_of_ten(caplog: pytest.LogCaptureFixture) -> None:
    share = Share(LOCAL, 1_000, lambda _: None)
    for _ in range(120):
        share.count_dropped(1)
    counts = [int(text.split()[2]) for text in caplog.messages]
    assert counts == [1, 10, 100]
    assert "publish at QoS 1" in caplog.text
    assert share.dropped == 120


def test_while_the_loop_lingers_connections_read_less_often_but_the_clouds(mailbox: Mailbox[Message]) -> None:
    local, urgent, cloud = (mailbox.share(each, LIMIT) for each in (LOCAL, URGENT, CLOUD))
    mailbox.wait(0, linger_s=0.02)
    assert 0 == cloud.gather_s < urgent.gather_s < local.gather_s < 0.02
    mailbox.wait(0)
    assert local.gather_s == urgent.gather_s == 0
