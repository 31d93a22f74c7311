"""What the control room reads as a participant."""

import threading
from typing import Any

from lab.control_room.tally import Tally
from lab.up.plane import _Readers
from tests.fake_plane import CONTRACT


def test_a_reader_goes_on_after_an_error() -> None:
    """A deployment interrupts the emulated cloud, and the button shows that the inbox is read."""
    calls: list[None] = []
    has_gone_on = threading.Event()

    def client() -> Any:
        calls.append(None)
        if len(calls) > 1:
            has_gone_on.set()
        raise ConnectionError

    with _Readers({"alarm-centre": "http://127.0.0.1:1/inbox"}, client, Tally(CONTRACT)):
        assert has_gone_on.wait(10)
