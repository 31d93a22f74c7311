"""What is in hand stays in hand while a slow handler works."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from eventplane_client.errors import UnavailableError
from eventplane_client.inbox import Inbox
from eventplane_client.memory import MemoryPlane, MemoryTransport
from eventplane_client.memory_filter import MemoryFilter
from eventplane_client.ports import Message
from tests.eventually import eventually
from tests.unit.client.worlds import READER, event

SECONDS = 20


class Extending(MemoryTransport):
    """Notes what is extended; the first time it fails."""

    def __init__(self, plane: MemoryPlane) -> None:
        super().__init__(plane, READER)
        self.extended: list[int] = []
        self.failed = threading.Event()

    def extend(self, messages: Sequence[Message]) -> None:
        if not self.failed.is_set():
            self.failed.set()
            raise UnavailableError(READER, "for now")
        super().extend(messages)
        self.extended.append(len(messages))


def test_what_is_in_hand_is_extended_also_after_a_failure_and_no_longer_than_that() -> None:
    plane = MemoryPlane(visibility_s=0.06)
    transport = Extending(plane)
    for number in range(3):
        plane.deliver(READER, event(str(number)))
    with Inbox(READER, transport, MemoryFilter()) as inbox:
        first = inbox.receive(SECONDS)
        assert eventually(lambda: len(transport.extended) >= 3, SECONDS)
        assert transport.extended[0] == 3  # what waits in the inbox's own buffer as well
        first.ack()
        transport.extended.clear()
        assert eventually(lambda: transport.extended[-1:] == [2], SECONDS)
    ended = len(transport.extended)
    assert plane.pending(READER) == 2
    assert len(transport.extended) <= ended + 1
