"""What a reader does when its filter fails, and when it ends."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from eventplane_client.client import Client
from eventplane_client.errors import NothingThereError, StateError
from eventplane_client.inbox import Inbox
from eventplane_client.letters import IN_DOUBT
from eventplane_client.memory import MemoryPlane, MemoryTransport
from eventplane_client.memory_filter import Memory, MemoryFilter
from eventplane_client.memory_subscriptions import MemorySubscriptions
from tests.unit.client.worlds import READER, event

SECONDS = 20.0


class Failing(MemoryFilter):
    """Its `release` fails while `is_full`; `is_closed` once it was."""

    is_full = True
    is_closed = False

    def release(self, keys: Sequence[bytes]) -> None:
        if self.is_full and keys:
            raise StateError(Path("state.db"), "database or disk is full", "make room")
        super().release(keys)

    def close(self) -> None:
        self.is_closed = True
        super().close()


def test_what_could_not_be_given_back_is_still_in_hand() -> None:
    plane, filter = MemoryPlane(visibility_s=0.05), Failing()
    plane.deliver(READER, event("one"))
    with Inbox(READER, MemoryTransport(plane, READER), filter) as inbox:
        received = inbox.receive(SECONDS)
        with pytest.raises(StateError):
            received.nack()
        filter.is_full = False
        received.nack()
        again = inbox.receive(SECONDS)
        assert (again.event.id, again.attempt > 1) == ("one", True)
        again.ack()
    assert plane.pending(READER) == 0


def test_what_a_silent_reader_has_in_hand_at_the_last_delivery_is_a_dead_letter() -> None:
    plane, memory, now = MemoryPlane(max_receives=3), Memory(), 0.0
    plane.deliver(READER, event("one"))
    Inbox(READER, MemoryTransport(plane, READER), MemoryFilter(memory, clock=lambda: now)).receive(SECONDS)
    filter = MemoryFilter(memory, clock=lambda: now)  # and the lease of the first does not end
    with Inbox(READER, MemoryTransport(plane, READER), filter, on_doubt=lambda _: True) as inbox:
        for _ in range(3):
            assert plane.events == []
            plane.expire()
            with pytest.raises(NothingThereError):
                inbox.receive(0)
    assert [each.attributes["deadletterreason"] for each in plane.events] == [IN_DOUBT]
    assert plane.pending(READER) == 0


def test_a_client_whose_inbox_fails_to_close_closes_all_the_rest() -> None:
    plane, filter = MemoryPlane(), Failing()
    plane.deliver(READER, event("one"))
    subscriptions = MemorySubscriptions(plane, READER)
    client = Client(READER, MemoryTransport(plane, READER), lambda: filter, subscriptions)
    client.subscribe().receive(SECONDS)
    with pytest.raises(StateError):
        client.close()
    assert filter.is_closed


def test_what_was_held_for_its_order_comes_again_at_once() -> None:
    plane = MemoryPlane(visibility_s=SECONDS)
    for number in (5, 7):
        plane.deliver(READER, event(str(number), sequence=str(number)))
    with Inbox(READER, MemoryTransport(plane, READER), MemoryFilter(), gap_timeout_s=0.01) as inbox:
        assert inbox.get(SECONDS).id == "5"
        plane.deliver(READER, event("9", sequence="9"))
    with Inbox(READER, MemoryTransport(plane, READER), MemoryFilter(), gap_timeout_s=0.01) as inbox:
        assert {inbox.get(1.0).id, inbox.get(1.0).id} == {"7", "9"}
