"""What a reader does when its filter fails, and when it ends."""

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane.dead_letter import DEAD_LETTER_TYPE, reason_in
from eventplane.envelope import Envelope, parse_event
from eventplane.guarantee import is_expired
from eventplane.ordering import Stream
from eventplane.reasons import Reason
from eventplane.values import timestamp
from eventplane_client.client import Client
from eventplane_client.delivery import Delivery
from eventplane_client.errors import (
    ClosedError,
    NothingThereError,
    StateError,
    UnavailableError,
    UnhandleableError,
    UnroutedError,
)
from eventplane_client.inbox import Inbox
from eventplane_client.memory import MemoryPlane, MemorySubscriptions, MemoryTransport
from eventplane_client.memory_duplicates import Memory, MemoryFilter
from eventplane_client.notices import DeadLettered, Expired, Notice, log_notice
from eventplane_client.ports import Message, Mode, Verdict
from eventplane_client.reader import PREFETCH, Reader
from tests.eventually import eventually
from tests.unit.client.worlds import HOME, READER, event, numbered

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
        plane.expire()
        again = inbox.receive(SECONDS)
        assert (again.event.id, again.attempt > 1) == ("one", True)
        again.ack()
    assert plane.pending(READER) == 0


@pytest.mark.parametrize("way", ["handle", "receive", "get"])
def test_what_was_handled_and_could_not_be_kept_is_in_doubt(way: str) -> None:
    class Throttled(MemoryFilter):
        def claim(self, keys: Sequence[bytes], done: Sequence[bytes] = (), **options: Any) -> list[Verdict]:
            if done:
                raise StateError("filter", "throttled", "try again")
            return super().claim(keys, done, **options)

    plane, memory, now = MemoryPlane(visibility_s=0.05), Memory(), [0.0]
    doubted: list[str] = []
    plane.deliver(READER, event("one"))
    plane.deliver(READER, event("two"))
    filter = Throttled(memory, clock=lambda: now[0])
    ways: dict[str, Callable[[Inbox], object]] = {
        "handle": lambda inbox: inbox.handle(lambda _: None),
        "receive": lambda inbox: inbox.receive(SECONDS).ack(),
        "get": lambda inbox: [inbox.get(SECONDS) for _ in range(2)],
    }
    with pytest.raises(StateError), Inbox(READER, MemoryTransport(plane, READER), filter) as inbox:
        ways[way](inbox)
    now[0] += 1_000
    plane.expire()
    again = MemoryFilter(memory, clock=lambda: now[0])
    with Inbox(
        READER, MemoryTransport(plane, READER), again, on_doubt=lambda each: bool(doubted.append(each.id))
    ) as inbox:
        assert inbox.receive(SECONDS).event.id == "two"
    assert doubted == ["one"]


def test_the_last_delivery_in_doubt_is_a_letter() -> None:
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
    assert [each.attributes["deadletterreason"] for each in plane.events] == [Reason.IN_DOUBT]
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


class ClosedMeanwhile(MemoryTransport):
    """Another thread closes `inbox`, with an `error` or without, while its reader receives."""

    inbox: Inbox
    error: BaseException | None = None

    def receive(self, most: int, timeout_s: float) -> list[Message]:
        closing = threading.Thread(target=self.inbox.close, args=(self.error,))
        closing.start()
        closing.join()
        return super().receive(most, timeout_s)


@pytest.mark.parametrize("error", [None, ValueError()])
def test_what_comes_during_close_comes_again(error: BaseException | None) -> None:
    plane, filter = MemoryPlane(max_receives=1), MemoryFilter()
    plane.deliver(READER, event("one"))
    transport = ClosedMeanwhile(plane, READER)
    transport.inbox, transport.error = Inbox(READER, transport, filter), error
    with pytest.raises(ClosedError):
        transport.inbox.get(SECONDS)
    assert plane.events == []  # no dead letter was written
    with Inbox(READER, MemoryTransport(plane, READER), filter) as inbox:
        assert inbox.get(0).id == "one"


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
def test_an_alarm_does_not_wait_for_all_that_a_filled_gap_lets_go() -> None:
    plane = MemoryPlane(visibility_s=SECONDS)
    alarm = event("alarm", orderin=f"{READER}/urgent/0123abcd/1", deviceepoch="one", **HOME)
    seen: list[str] = []
    with Inbox(READER, MemoryTransport(plane, READER), MemoryFilter()) as inbox:
        for number in range(2, 102):
            plane.deliver(READER, numbered(number))
            with pytest.raises(NothingThereError):
                inbox.get(0)
        plane.deliver(READER, numbered(1))
        assert inbox.get(SECONDS).id == "1"
        plane.deliver(READER, alarm)
        while "alarm" not in seen:
            seen.append(inbox.get(SECONDS).id)
        assert len(seen) <= PREFETCH + 1
        seen += [inbox.get(SECONDS).id for _ in range(101 - len(seen))]
    assert [each for each in seen if each != "alarm"] == [str(number) for number in range(2, 102)]


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


NOON = "2030-01-01T12:00:00Z"
NOON_S = 1_893_499_200.0
"""The same, Unix seconds."""


def reader_at(plane: MemoryPlane, now: list[float], **options: Any) -> Reader:
    settings: dict[str, Any] = {
        "mode": Mode.EXACTLY_ONCE,
        "on_notice": log_notice,
        "on_doubt": None,
        **options,
    }
    filter = settings.pop("filter", MemoryFilter())

    def has_expired(event: Envelope) -> bool:
        return is_expired(event, int(now[0] * 1_000))

    return Reader(READER, MemoryTransport(plane, READER), filter, has_expired=has_expired, **settings)


@pytest.mark.source("C4")
def test_nobody_is_asked_about_what_expired_after_a_crash() -> None:
    plane, now, memory, leases = MemoryPlane(), [NOON_S - 1], Memory(), [0.0]

    def filter_of() -> MemoryFilter:
        return MemoryFilter(memory, clock=lambda: leases[0])

    plane.deliver(READER, event("one", expirytime=NOON))
    assert len(reader_at(plane, now, filter=filter_of()).next(1, 0)) == 1
    now[0], leases[0] = NOON_S, 3_600.0
    plane.expire()
    asked: list[str] = []
    notices: list[Notice] = []

    def on_doubt(found: Any) -> bool:
        asked.append(found.id)
        return True

    reader = reader_at(plane, now, filter=filter_of(), on_doubt=on_doubt, on_notice=notices.append)
    assert reader.next(1, 0) == []
    assert asked == []
    assert [type(each) for each in notices] == [Expired]
    assert plane.pending(READER) == 0
    assert plane.events == []


@pytest.mark.source("C4")
def test_what_expired_does_not_hold_up_its_order() -> None:
    plane, now = MemoryPlane(), [NOON_S]
    for number in (3, 2, 1):
        late = {"expirytime": NOON} if number == 2 else {}
        plane.deliver(READER, numbered(number, **late))
    reader = reader_at(plane, now, gap_timeout_s=SECONDS)
    assert [each.event.id for each in reader.next(10, 0)] == ["1", "3"]


@pytest.mark.source("C4")
@given(
    st.lists(st.tuples(st.sampled_from(["deliver", "wait", "read", "ack", "nack"]), st.integers(0, 4))),
    st.sampled_from(list(Mode)),
)
def test_nothing_expired_comes_out(steps: list[tuple[str, int]], mode: Mode) -> None:
    """Times are in seconds; an event lasts as long as its step says."""
    plane, now, notices = MemoryPlane(max_receives=1_000), [NOON_S], list[Notice]()
    reader = reader_at(plane, now, mode=mode, on_notice=notices.append)
    ends: dict[str, float] = {}
    held: list[Delivery] = []
    done: list[str] = []

    def read(most: int) -> None:
        for each in reader.next(most, 0):
            assert ends[each.event.id] > now[0]
            held.append(each)

    for what, amount in steps:
        if what == "deliver":
            id = str(len(ends))
            ends[id] = now[0] + amount
            expirytime = timestamp(datetime.fromtimestamp(ends[id], UTC))
            plane.deliver(READER, event(id, expirytime=expirytime))
        elif what == "wait":
            now[0] += amount
        elif what == "read":
            read(amount + 1)
        elif held:
            each = held.pop(0)
            if what == "ack":
                done.append(each.event.id)
                reader.settle([each])
            else:
                reader.give_back(each, "again")
                plane.expire()
                done += [each.event.id] * (mode is Mode.AT_MOST_ONCE)  # it does not come again
    now[0] += 10
    for each in held:
        done.append(each.event.id)
        reader.settle([each])
    plane.expire()
    read(1_000)
    done += [each.id for each in notices if isinstance(each, Expired)]
    # Without a filter, the copy of one that was held when its message came back may expire by itself.
    ended = set(done) if mode is Mode.AT_LEAST_ONCE else done
    assert sorted(ended) == sorted(ends)
    assert plane.pending(READER) == 0


class NoLetters(MemoryTransport):
    """A transport that takes no dead letters, as where no route of a device leads them anywhere."""

    keeps_refused = True

    def __init__(self, plane: MemoryPlane) -> None:
        super().__init__(plane, READER)
        self.refused: list[str | None] = []

    def put(self, event: Envelope, timeout_s: float, *, durable: bool) -> None:
        raise UnroutedError(READER, f"no route takes {event.type} within {timeout_s} s, {durable=}")

    def acknowledge(self, messages: Sequence[Message], *, refused: str | None = None) -> list[Message]:
        self.refused += [refused for _ in messages]
        return super().acknowledge(messages, refused=refused)


@pytest.mark.parametrize("keeps_refused", [True, False])
@pytest.mark.parametrize("body", ["event", "garbage"])
def test_what_has_no_letter_has_a_receipt(body: str, keeps_refused: bool) -> None:
    """A letter that is refused once is always refused. A queue without receipts has a limit of receives."""
    plane, notices = MemoryPlane(), list[Notice]()
    plane.subscribe(READER, "inbox", None)
    transport = NoLetters(plane)
    transport.keeps_refused = keeps_refused
    inbox = Inbox(READER, transport, None, mode=Mode.AT_LEAST_ONCE, on_notice=notices.append)
    if body == "event":
        plane.deliver(READER, event("1"))
        inbox.receive(0).nack(UnhandleableError("no_bulb", "it has none"))
    else:
        plane.deliver_raw(READER, b"garbage")
    with pytest.raises(NothingThereError):
        inbox.receive(0)
    reason = "no_bulb" if body == "event" else "not_json"
    told = [reason] if keeps_refused else []
    assert transport.refused == told
    assert [each.reason for each in notices if isinstance(each, DeadLettered)] == told
    assert plane.pending(READER) == (0 if keeps_refused else 1)


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


def test_what_is_in_hand_is_extended() -> None:
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


class MuteError(Exception):
    def __str__(self) -> str:
        raise LookupError


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MuteError(), "MuteError"),
        (FileNotFoundError(2, "no such file", "K\udcffche"), "FileNotFoundError"),
        (type("Two\nlines", (Exception,), {})("x"), "refused"),
        *((each, "refused") for each in ("the exchange\nis down", "\ud800", "\0", "", "x" * 65)),
        ("busy", "busy"),
        (UnhandleableError("not a word", "\ud800"), "refused"),
        (UnhandleableError("broken", None), "broken"),  # type: ignore[arg-type]
    ],
)
def test_any_failure_makes_a_letter(
    error: Exception | str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Else its event would come again for ever, and end its reader each time."""
    caplog.set_level(logging.CRITICAL)  # half of a pair in what was captured ends pytest's worker
    plane = MemoryPlane(max_receives=1)
    plane.deliver(READER, event("one"))
    with Inbox(READER, MemoryTransport(plane, READER), None, on_notice=lambda _: None) as inbox:
        inbox.receive(SECONDS).nack(error)
    (letter,) = (each for each in plane.events if each.type == DEAD_LETTER_TYPE)
    assert reason_in(parse_event(letter.json)) == reason
    assert plane.pending(READER) == 0
