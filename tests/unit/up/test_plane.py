"""What the control room sends and reads as a participant."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from lab.control_room.tally import Tally
from lab.up.plane import LocalPlane, NoParticipantError, _Readers
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


def test_what_has_no_outbox_sends_nothing() -> None:
    """The plane's own services, for one."""
    plane: Any = object.__new__(LocalPlane)
    plane._plane = SimpleNamespace(contract=CONTRACT, outputs={"CarersOutboxUrl": "http://127.0.0.1:1/q"})
    with pytest.raises(NoParticipantError, match=r"choose one of: .*carers") as refused:
        plane.send("downlink", {"type": "a", "source": "/b"})
    assert "device," not in str(refused.value)
