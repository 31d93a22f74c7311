"""What a reader does when its filter fails, and when it ends."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from eventplane.ordering import Stream
from eventplane_client.client import Client
from eventplane_client.errors import NothingThereError, StateError
from eventplane_client.inbox import Inbox
from eventplane_client.letters import IN_DOUBT
from eventplane_client.memory import MemoryPlane, MemoryTransport
from eventplane_client.memory_filter import Memory, MemoryFilter
from eventplane_client.memory_subscriptions import MemorySubscriptions
from tests.unit.client.worlds import READER, event, numbered

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
    plane, filter = MemoryPlane(visibility_s=SECONDS), MemoryFilter()
    for number in (5, 7):
        plane.deliver(READER, numbered(number))
    with Inbox(READER, MemoryTransport(plane, READER), filter, gap_timeout_s=0.01) as inbox:
        assert inbox.get(SECONDS).id == "5"
        plane.deliver(READER, numbered(9))
    with Inbox(READER, MemoryTransport(plane, READER), filter, gap_timeout_s=0.01) as inbox:
        assert {inbox.get(1.0).id, inbox.get(1.0).id} == {"7", "9"}


@pytest.mark.source("P17")
def test_a_second_reader_waits_until_the_first_is_done_with_what_goes_before() -> None:
    plane, memory = MemoryPlane(visibility_s=SECONDS), Memory()
    plane.deliver(READER, numbered(1))
    with (
        Inbox(READER, MemoryTransport(plane, READER), MemoryFilter(memory)) as one,
        Inbox(READER, MemoryTransport(plane, READER), MemoryFilter(memory)) as other,
    ):
        first = one.receive(SECONDS)
        plane.deliver(READER, numbered(2))
        with pytest.raises(NothingThereError):
            other.get(0)
        first.ack()
        assert other.get(SECONDS).id == "2"


@pytest.mark.source("P17")
def test_a_copy_of_what_another_reader_has_in_hand_holds_back_what_follows() -> None:
    plane, memory = MemoryPlane(visibility_s=SECONDS), Memory()
    plane.deliver(READER, numbered(1))
    with (
        Inbox(READER, MemoryTransport(plane, READER), MemoryFilter(memory)) as one,
        Inbox(READER, MemoryTransport(plane, READER), MemoryFilter(memory)) as other,
    ):
        first = one.receive(SECONDS)
        for number in (1, 2):
            plane.deliver(READER, numbered(number))
        with pytest.raises(NothingThereError):
            other.receive_batch(10, 0)
        first.ack()
        assert other.get(SECONDS).id == "2"


@pytest.mark.source("P17")
def test_a_position_that_cannot_be_read_or_stored_loses_no_event() -> None:
    class Broken(MemoryFilter):
        def position(self, stream: Stream) -> int | None:
            raise StateError(Path("state.db"), "no connection", "wait")

        def advance(self, stream: Stream, position: int) -> None:
            raise StateError(Path("state.db"), "no connection", "wait")

    plane, filter = MemoryPlane(visibility_s=SECONDS), Broken()
    for number in (2, 1):
        plane.deliver(READER, numbered(number))
    with Inbox(READER, MemoryTransport(plane, READER), filter) as inbox:
        assert [inbox.get(SECONDS).id, inbox.get(SECONDS).id] == ["1", "2"]
    assert plane.pending(READER) == 0
