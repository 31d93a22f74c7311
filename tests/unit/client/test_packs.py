"""Messages with several events: each event is settled by itself, the message once all of them are."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane.envelope import Envelope
from eventplane.limits import MAX_BATCH_EVENTS
from eventplane.sqs_binding import pack
from eventplane_client.errors import NothingThereError
from eventplane_client.functions import RESERVE_MS
from eventplane_client.inbox import Inbox
from eventplane_client.letters import IN_DOUBT
from eventplane_client.memory_filter import Memory, MemoryFilter
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


class Queue:
    """A queue of SQS for one reader: `bodies` that are there, `put` events, what was done to each message."""

    visibility_s = None
    max_receives = 3

    def __init__(self, *bodies: str) -> None:
        self.bodies = dict(enumerate(bodies))
        self.visible = list(self.bodies)
        self.attempts = dict.fromkeys(self.bodies, 0)
        self.waits: list[float] = []
        self.letters: list[Envelope] = []
        self.asked: list[int] = []
        self.refuses = False

    def put(self, event: Envelope, timeout_s: float, *, durable: bool) -> None:
        self.letters.append(event)

    def receive(self, most: int, timeout_s: float) -> list[Message]:
        self.asked.append(most)
        found, self.visible = self.visible[:most], self.visible[most:]
        for each in found:
            self.attempts[each] += 1
        return [Message(self.bodies[each].encode(), self.attempts[each], each) for each in found]

    def acknowledge(self, messages: Sequence[Message], *, refused: str | None = None) -> list[Message]:
        if self.refuses:
            return list(messages)
        for each in messages:
            assert isinstance(each.handle, int)
            del self.bodies[each.handle]
        return []

    def release(self, message: Message, wait_s: float) -> None:
        assert isinstance(message.handle, int)
        self.waits.append(wait_s)
        if wait_s < 30:  # no test lasts so long
            self.visible.append(message.handle)

    def extend(self, messages: Sequence[Message]) -> None:
        pass

    def close(self) -> None:
        pass

    def expire(self) -> None:
        """Let everything come again."""
        self.visible = list(self.bodies)


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
            assert (received.event, received.attempt, len(queue.bodies)) == (each, 1, 1)
            received.ack()
    assert (queue.bodies, queue.waits) == ({}, [])


def test_an_event_that_was_given_back_comes_again_without_those_that_are_done() -> None:
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
    assert (queue.bodies, queue.letters) == ({}, [])


@pytest.mark.parametrize("mode", [Mode.EXACTLY_ONCE, Mode.AT_LEAST_ONCE], ids=["filter", "no filter"])
@pytest.mark.parametrize("failing", [0, 1])
def test_an_event_that_fails_each_time_is_a_dead_letter_by_itself_and_repeats_no_other(
    mode: Mode, failing: int
) -> None:
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
    assert queue.bodies == {}


def test_an_item_that_is_no_event_is_a_dead_letter_and_the_others_go_on() -> None:
    one, two = many(2)
    queue = Queue(f'[{one.json},{{"id":1}},{two.json}]')
    with inbox(queue) as reader:
        assert [reader.get(0), reader.get(0)] == [one, two]
    (letter,) = queue.letters
    assert letter.data()["original_bytes"] == len('{"id":1}')
    assert queue.bodies == {}


@pytest.mark.parametrize(
    ("body", "letters"), [*((each, 1) for each in ("[", "[1,", "H4sI", "H4sIAAAAAAAA", "H4sI*")), ("[]", 0)]
)
def test_a_message_that_cannot_be_read_is_one_dead_letter_and_an_empty_one_none(
    body: str, letters: int
) -> None:
    queue = Queue(body)
    with inbox(queue) as reader, pytest.raises(NothingThereError):
        reader.get(0)
    assert (len(queue.letters), queue.bodies) == (letters, {})


def test_after_a_crash_only_what_was_in_hand_is_in_doubt() -> None:
    events = many(3)
    queue, memory, doubted = Queue(packed(*events)), Memory(), list[str]()
    crashed = inbox(queue, memory)
    crashed.receive(0).ack()
    crashed.receive(0)
    queue.expire()

    def again(event: Envelope) -> bool:
        doubted.append(event.id)
        return True

    with inbox(queue, memory, on_doubt=again, now=1e6) as reader:
        assert [reader.get(0), reader.get(0)] == events[1:]
    assert doubted == [events[1].id]
    assert queue.bodies == {}


def test_without_a_word_on_doubt_what_was_in_hand_at_a_crash_is_a_dead_letter() -> None:
    events = many(2)
    queue, memory = Queue(packed(*events)), Memory()
    inbox(queue, memory).receive(0)
    queue.expire()
    with inbox(queue, memory, now=1e6) as reader:
        assert reader.get(0) == events[1]
    assert [each.attributes["deadletterreason"] for each in queue.letters] == [IN_DOUBT]
    assert queue.bodies == {}


def test_a_reader_that_ends_gives_back_what_it_did_not_hand_out() -> None:
    events = many(3)
    queue, memory = Queue(packed(*events)), Memory()
    with inbox(queue, memory) as reader:
        assert reader.get(0) == events[0]
    assert queue.waits == [0]
    with inbox(queue, memory) as reader:
        assert reader.get_batch(3, 0) == events[1:]
    assert queue.bodies == {}


def test_a_copy_of_a_message_in_hand_waits_and_ends_with_it() -> None:
    events = many(2)
    queue = Queue(packed(*events))
    with inbox(queue) as reader:
        first, second = reader.receive_batch(2, 0)
        queue.expire()  # its extension came too late
        with pytest.raises(NothingThereError):
            reader.receive(0)
        assert queue.waits == [30]
        first.ack()
        second.ack()
    assert queue.bodies == {}


def test_at_most_once_deletes_the_message_before_its_first_event_is_handled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    queue = Queue(packed(*many(3)))
    with inbox(queue, mode=Mode.AT_MOST_ONCE) as reader:
        reader.receive(0)
        assert queue.bodies == {}
        reader.receive(0)
    assert caplog.text.count("is dropped") == 1
    assert queue.waits == []


def test_at_most_once_hands_out_nothing_of_a_message_that_cannot_be_deleted() -> None:
    queue = Queue(packed(*many(3)))
    queue.refuses = True
    with inbox(queue, mode=Mode.AT_MOST_ONCE) as reader, pytest.raises(NothingThereError):
        reader.get(0)
    assert len(queue.bodies) == 1


def test_full_packs_are_fetched_one_by_one() -> None:
    queue = Queue(*(packed(*many(MOST_IN_HAND)) for _ in range(20)))
    with inbox(queue) as reader:
        for _ in range(11 * MOST_IN_HAND):
            reader.get(0)
            assert len(queue.bodies) - len(queue.visible) <= 10
    assert queue.asked[0] == 10
    assert set(queue.asked[1:]) == {1}


def test_after_a_full_pack_among_single_events_ten_messages_are_not_fetched_at_once() -> None:
    singles = [packed(event()) for _ in range(9)]
    queue = Queue(packed(*many(MOST_IN_HAND)), *singles, *(packed(event()) for _ in range(30)))
    with inbox(queue) as reader:
        for _ in range(MOST_IN_HAND + 39):
            reader.get(0)
    assert queue.asked[:6] == [10, 1, 2, 4, 8, 10]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.sets(st.integers(1, 30)), st.integers(1, 7))
def test_each_event_is_handled_once_whatever_is_given_back(
    sizes: list[int], failing: set[int], most: int
) -> None:
    batches = [many(size) for size in sizes]
    queue, handled, tried = Queue(*(packed(*each) for each in batches)), list[str](), 0
    with inbox(queue) as reader:
        while queue.visible:
            for received in reader.receive_batch(most, 0):
                tried += 1
                if tried in failing and received.attempt < queue.max_receives:
                    received.nack()
                else:
                    received.ack()
                    handled.append(received.event.id)
            try:
                while not queue.visible:
                    received = reader.receive(0)
                    received.ack()
                    handled.append(received.event.id)
            except NothingThereError:
                pass
    assert sorted(handled) == sorted(each.id for batch in batches for each in batch)
    assert (queue.bodies, queue.letters) == ({}, [])


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
