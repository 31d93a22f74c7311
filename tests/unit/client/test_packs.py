"""Messages with several events: each event is settled by itself, the message once all of them are."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane.envelope import Envelope
from eventplane.limits import MAX_BATCH_EVENTS
from eventplane.reasons import Reason
from eventplane.sqs_binding import pack
from eventplane_client.errors import NothingThereError
from eventplane_client.functions import RESERVE_MS
from eventplane_client.inbox import Inbox
from eventplane_client.memory import MemoryPlane, MemoryTransport
from eventplane_client.memory_duplicates import Memory, MemoryFilter
from eventplane_client.packs import MOST_IN_HAND
from eventplane_client.ports import Message, Mode
from eventplane_client.reader import Doubt
from tests.unit.client.test_functions import World
from tests.unit.client.worlds import READER, event
from tests.unit.lambdas.support import LambdaContext


def packed(*events: Envelope) -> str:
    (message,) = pack(events, {"route": "alarms"}, MAX_BATCH_EVENTS)
    return message.body


def many(count: int) -> list[Envelope]:
    return [event() for _ in range(count)]


class Queue(MemoryTransport):
    """An inbox that holds `bodies`; after which waits messages came again, and how many were asked for."""

    def __init__(self, *bodies: str) -> None:
        self.plane = MemoryPlane(max_receives=3, visibility_s=600)
        super().__init__(self.plane, READER)
        for each in bodies:
            self.plane.deliver_raw(READER, each.encode())
        self.waits: list[float] = []
        self.asked: list[int] = []
        self.in_hand: dict[object, Message] = {}
        self.refuses = False

    @property
    def left(self) -> int:
        """The messages that are not deleted."""
        return self.plane.pending(READER)

    @property
    def letters(self) -> list[Envelope]:
        return self.plane.events

    def receive(self, most: int, timeout_s: float) -> list[Message]:
        self.asked.append(most)
        found = super().receive(most, timeout_s)
        self.in_hand |= {each.handle: each for each in found}
        return found

    def acknowledge(self, messages: Sequence[Message], *, refused: str | None = None) -> list[Message]:
        if self.refuses:
            return list(messages)
        for each in messages:
            del self.in_hand[each.handle]
        return super().acknowledge(messages, refused=refused)

    def release(self, message: Message, wait_s: float) -> None:
        self.waits.append(wait_s)
        del self.in_hand[message.handle]
        super().release(message, 600 if wait_s >= 30 else 0)  # no test lasts so long


def inbox(
    queue: Queue,
    memory: Memory | None = None,
    mode: Mode = Mode.EXACTLY_ONCE,
    on_doubt: Doubt | None = None,
    now: float = 0.0,
) -> Inbox:
    filter = MemoryFilter(memory or Memory(), clock=lambda: now)
    return Inbox(READER, queue, filter, mode=mode, on_doubt=on_doubt, on_notice=lambda _: None)


def test_a_message_is_deleted_when_all_of_its_events_are_done() -> None:
    events = many(3)
    queue = Queue(packed(*events))
    with inbox(queue) as reader:
        for each in events:
            received = reader.receive(0)
            assert (received.event, received.attempt, queue.left) == (each, 1, 1)
            received.ack()
    assert (queue.left, queue.waits) == (0, [])


def test_what_is_given_back_comes_alone() -> None:
    events = many(3)
    queue = Queue(packed(*events))
    with inbox(queue) as reader:
        first, second, third = reader.receive_batch(3, 0)
        second.nack()
        assert queue.waits == []  # the others are in hand
        first.ack()
        third.ack()
        assert queue.waits == [1.0]
        again = reader.receive(0)
        assert (again.event, again.attempt) == (events[1], 2)
        again.ack()
        with pytest.raises(NothingThereError):
            reader.receive(0)  # the others are looked at, and known
    assert (queue.left, queue.letters) == (0, [])


@pytest.mark.parametrize("mode", [Mode.EXACTLY_ONCE, Mode.AT_LEAST_ONCE], ids=["filter", "no filter"])
@pytest.mark.parametrize("failing", [0, 1])
def test_a_poison_repeats_no_other(mode: Mode, failing: int) -> None:
    events = many(3)
    queue, handled = Queue(packed(*events)), list[str]()

    def handle(event: Envelope) -> None:
        handled.append(event.id)
        if event.id == events[failing].id:
            raise ZeroDivisionError

    with inbox(queue, mode=mode) as reader:
        reader.handle(handle, idle_s=0)
    assert handled == [*(each.id for each in events), *[events[failing].id] * 2]
    assert [each.attributes["deadletterreason"] for each in queue.letters] == ["ZeroDivisionError"]
    assert queue.left == 0


def test_a_malformed_item_is_a_letter() -> None:
    one, two = many(2)
    queue = Queue(f'[{one.json},{{"id":1}},{two.json}]')
    with inbox(queue) as reader:
        assert [reader.get(0), reader.get(0)] == [one, two]
    (letter,) = queue.letters
    assert letter.data()["original_bytes"] == len('{"id":1}')
    assert queue.left == 0


@pytest.mark.parametrize(
    ("body", "letters"), [*((each, 1) for each in ("[", "[1,", "H4sI", "H4sIAAAAAAAA", "H4sI*")), ("[]", 0)]
)
def test_an_unreadable_pack_is_one_letter(body: str, letters: int) -> None:
    queue = Queue(body)
    with inbox(queue) as reader, pytest.raises(NothingThereError):
        reader.get(0)
    assert (len(queue.letters), queue.left) == (letters, 0)


@pytest.mark.parametrize("again", [True, None])
def test_after_a_crash_only_what_was_in_hand_is_in_doubt(again: bool | None) -> None:
    """Without a program that decides, it is a dead letter."""
    events = many(3)
    queue, memory, doubted = Queue(packed(*events)), Memory(), list[str]()
    crashed = inbox(queue, memory)
    crashed.receive(0).ack()
    crashed.receive(0)
    queue.plane.expire()

    def decide(event: Envelope) -> bool:
        doubted.append(event.id)
        return True

    with inbox(queue, memory, on_doubt=decide if again else None, now=1e6) as reader:
        assert [each.id for each in reader.get_batch(3, 0)] == [
            each.id for each in events[1 if again else 2 :]
        ]
    assert doubted == ([events[1].id] if again else [])
    letters = [each.attributes["deadletterreason"] for each in queue.letters]
    assert letters == ([] if again else [Reason.IN_DOUBT])
    assert queue.left == 0


def test_of_a_redriven_message_only_what_is_not_done_is_handed_out() -> None:
    events = many(3)
    queue, memory = Queue(packed(*events)), Memory()
    crashed = inbox(queue, memory)
    crashed.receive(0).ack()
    crashed.receive(0)
    memory.tries = dict.fromkeys(memory.tries, 9)  # before the operator ended the cause
    (message,) = queue.in_hand.values()
    redriven = replace(message, redrive="run-1.letter-1")
    queue.receive = lambda *_: [redriven]  # type: ignore[method-assign]
    with inbox(queue, memory, now=1e6) as reader:
        assert reader.get_batch(3, 0) == events[1:]
    assert queue.letters == []


def test_a_reader_that_ends_gives_back_what_it_did_not_hand_out() -> None:
    events = many(3)
    queue, memory = Queue(packed(*events)), Memory()
    with inbox(queue, memory) as reader:
        assert reader.get(0) == events[0]
    assert queue.waits == [0]
    with inbox(queue, memory) as reader:
        assert reader.get_batch(3, 0) == events[1:]
    assert queue.left == 0


def test_a_copy_of_a_message_in_hand_waits_and_hands_out_nothing() -> None:
    queue = Queue(packed(*many(2)))
    with inbox(queue) as reader:
        for received in reader.receive_batch(2, 0):
            queue.plane.expire()  # its extension came too late
            with pytest.raises(NothingThereError):
                reader.receive(0)
            received.ack()
        assert set(queue.waits) == {30}
        queue.plane.expire()
        with pytest.raises(NothingThereError):
            reader.receive(0)
    assert queue.left == 0


def test_at_most_once_deletes_first(caplog: pytest.LogCaptureFixture) -> None:
    queue = Queue(packed(*many(3)))
    with inbox(queue, mode=Mode.AT_MOST_ONCE) as reader:
        reader.receive(0)
        assert queue.left == 0
        reader.receive(0)
    assert caplog.text.count("is dropped") == 1
    assert queue.waits == []


def test_at_most_once_needs_the_deletion() -> None:
    queue = Queue(packed(*many(3)))
    queue.refuses = True
    with inbox(queue, mode=Mode.AT_MOST_ONCE) as reader, pytest.raises(NothingThereError):
        reader.get(0)
    assert queue.left == 1


def test_full_packs_are_fetched_one_by_one() -> None:
    queue = Queue(*(packed(*many(MOST_IN_HAND)) for _ in range(20)))
    with inbox(queue) as reader:
        for _ in range(11 * MOST_IN_HAND):
            reader.get(0)
            assert len(queue.in_hand) <= 10
    assert queue.asked[0] == 10
    assert set(queue.asked[1:]) == {1}


def test_after_a_full_pack_fewer_are_fetched() -> None:
    singles = [packed(event()) for _ in range(9)]
    queue = Queue(packed(*many(MOST_IN_HAND)), *singles, *(packed(event()) for _ in range(30)))
    with inbox(queue) as reader:
        for _ in range(MOST_IN_HAND + 39):
            reader.get(0)
    assert queue.asked[:6] == [10, 1, 2, 4, 8, 10]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.sets(st.integers(1, 30)), st.integers(1, 7))
def test_each_event_is_handled_once(sizes: list[int], failing: set[int], most: int) -> None:
    batches = [many(size) for size in sizes]
    queue, handled, tried = Queue(*(packed(*each) for each in batches)), list[str](), 0
    with inbox(queue) as reader, contextlib.suppress(NothingThereError):
        while True:
            for received in reader.receive_batch(most, 0):
                tried += 1
                if tried in failing and received.attempt < queue.max_receives:
                    received.nack()
                else:
                    received.ack()
                    handled.append(received.event.id)
    assert sorted(handled) == sorted(each.id for batch in batches for each in batch)
    assert (queue.left, queue.letters) == (0, [])


def test_a_function_keeps_the_message_of_an_event_that_fails() -> None:
    world = World()
    good, bad, other = many(3)
    world.failing[bad.id] = ValueError("no")
    assert world.invoke(packed(good, bad), packed(other, event())) == [0]
    world.failing.clear()
    assert world.invoke(packed(good, bad), attempt=2) == []
    assert world.handled.count(good.id) == 1
    assert world.handled.count(bad.id) == 2


def test_a_function_without_time_gives_back_what_it_did_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    world, events = World(), many(3)
    with monkeypatch.context() as late:
        late.setattr(LambdaContext, "get_remaining_time_in_millis", lambda _: RESERVE_MS - 1)
        assert world.invoke(packed(*events)) == [0]
    assert world.handled == [events[0].id]
    assert world.invoke(packed(*events), attempt=2) == []
    assert world.handled == [each.id for each in events]
