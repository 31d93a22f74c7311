"""Lambda functions that read an inbox: what the queue keeps, and what it does not."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from time import time_ns
from typing import Any

import boto3
import pytest

from eventplane.envelope import Envelope
from eventplane_client.delivery import Handling, NoTelemetry
from eventplane_client.errors import LeaseTooLongError, StateError, UnfinishedHandlerError
from eventplane_client.functions import MARGIN_S, RESERVE_MS, Handler, handles_events
from eventplane_client.inbox import Inbox
from eventplane_client.memory import MemoryPlane, MemoryTransport
from eventplane_client.memory_duplicates import Memory, MemoryFilter
from eventplane_client.ports import Message, MessageFilter, digest
from eventplane_client.reader import PREFETCH
from eventplane_client.resequencer import GAP_TIMEOUT_S
from tests.fakes.aws import FakeAws
from tests.unit.client.worlds import MAX_RECEIVES, READER, create_filter_table, event, numbered, redrive
from tests.unit.lambdas.support import LambdaContext


def record(
    id: str, body: str, attempt: int, group: str | None = None, waited_s: float = 0.0, run: str = ""
) -> dict[str, Any]:
    """A message as an event source mapping hands it to the function, `waited_s` after it did so first."""
    return {
        "messageId": id,
        "receiptHandle": f"receipt-{id}",
        "eventSourceARN": f"arn:aws:sqs:eu-central-1:123456789012:inbox{'.fifo' if group else ''}",
        "body": body,
        "attributes": {
            "ApproximateReceiveCount": str(attempt),
            "SentTimestamp": "1767225600000",
            "ApproximateFirstReceiveTimestamp": str(time_ns() // 1_000_000 - int(waited_s * 1_000)),
            **({"MessageGroupId": group} if group else {}),
        },
        "messageAttributes": {
            name: {"stringValue": value, "dataType": "String"}
            for name, value in (("route", "alarms"), ("redriven", run))
            if value
        },
    }


def function_of(
    handler: Callable[[Envelope], object],
    plane: MemoryPlane,
    filters: Callable[..., MessageFilter],
    **options: Any,
) -> Handler:
    """The function of a process that reads the inbox; `filters` makes its filter for each invocation."""
    decorate = handles_events(
        READER,
        "test",
        on_notice=lambda _: None,
        wiring=lambda: (MemoryTransport(plane, READER), lambda lease: filters(lease=lease)),
        **options,
    )
    return decorate(handler)


class World:
    """A function whose handler notes what it gets and fails for the ids in `failing`."""

    def __init__(self, **options: Any) -> None:
        self.plane = MemoryPlane(visibility_s=60, max_receives=MAX_RECEIVES)
        self.memory = Memory()
        self.handled: list[str] = []
        self.failing: dict[str, BaseException] = {}
        self._options = options

    def invoke(
        self,
        *bodies: Envelope | str,
        attempt: int = 1,
        group: str | None = None,
        waited_s: float = 0.0,
        run: str = "",
    ) -> list[int]:
        """Which of the messages the queue keeps, by place; in a process of its own."""

        def handle(event: Envelope) -> None:
            self.handled.append(event.id)
            if event.id in self.failing:
                raise self.failing[event.id]

        filters = partial(MemoryFilter, self.memory)
        records = [
            record(str(at), body.json if isinstance(body, Envelope) else body, attempt, group, waited_s, run)
            for at, body in enumerate(bodies)
        ]
        function = function_of(handle, self.plane, filters, **self._options)
        answer = function({"Records": records}, LambdaContext())
        return [int(each["itemIdentifier"]) for each in answer["batchItemFailures"]]


def test_telemetry_is_told_when_and_over_which_route_an_event_came() -> None:
    class Watch(NoTelemetry):
        def begin(self, participant: str, event: Envelope, message: Message) -> Handling:
            seen.append((participant, event.id, message.sent_at_ms, message.route))
            return super().begin(participant, event, message)

    seen: list[object] = []
    assert World(telemetry=Watch()).invoke(event("a")) == []
    assert seen == [(READER, "a", 1_767_225_600_000, "alarms")]


def test_what_fails_is_kept_until_the_limit_and_the_rest_is_done() -> None:
    world = World()
    world.failing["b"] = KeyError("room")
    events = [event(id) for id in "abc"]
    assert world.invoke(*events) == [1]
    assert world.invoke(*events, attempt=2) == [1]
    assert world.invoke(*events, "garbage", attempt=MAX_RECEIVES) == []
    assert world.handled == ["a", "b", "c", "b", "b"]
    assert [each.attributes["deadletterreason"] for each in world.plane.events] == ["not_json", "KeyError"]


@pytest.mark.parametrize("in_other_hands", [False, True])
def test_in_a_fifo_queue_what_follows_in_the_group_waits(in_other_hands: bool) -> None:
    world = World()
    if in_other_hands:
        MemoryFilter(world.memory).claim([digest(event("a"))])
    else:
        world.failing["a"] = ValueError()
    assert world.invoke(*(event(id) for id in "abc"), attempt=2, group="g") == [0, 1, 2]
    assert world.handled == ([] if in_other_hands else ["a"])


@pytest.mark.parametrize("fails", [False, True])
def test_what_there_is_no_time_for_comes_again(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    world = World()
    if fails:
        world.failing["a"] = ValueError()
    monkeypatch.setattr(LambdaContext, "get_remaining_time_in_millis", lambda _: RESERVE_MS - 1)
    more = [event() for _ in range(PREFETCH)]
    assert world.invoke(event("a"), *more) == list(range(0 if fails else 1, 1 + len(more)))
    assert world.handled == ["a"]


def test_what_was_not_given_back_is_in_doubt() -> None:
    class Failing(MemoryFilter):
        def release(self, keys: Sequence[bytes]) -> None:
            raise StateError("filter", "throttled", "try again")

    memory, now, handled = Memory(), [0.0], list[str]()
    kinds: list[type[MemoryFilter]] = [MemoryFilter, Failing]

    def make(**lease: Any) -> MemoryFilter:
        return kinds.pop()(memory, **lease, clock=lambda: now[0])

    def fail_once(event: Envelope) -> None:
        handled.append(event.id)
        if kinds:
            raise ValueError

    handle = function_of(fail_once, MemoryPlane(visibility_s=60), make, on_doubt=lambda _: True)
    batch = {"Records": [record("0", event("a").json, 1)]}
    with pytest.raises(StateError):
        handle(batch, LambdaContext())
    now[0] += 30 + MARGIN_S + 1
    assert handle(batch, LambdaContext()) == {"batchItemFailures": []}
    assert handled == ["a", "a"]


@pytest.mark.parametrize(("attempt", "age_s", "least_s"), [(1, 0.0, 1.0), (30, 600.0, 15.0)])
def test_failed_claims_spend_no_receives(
    attempt: int, age_s: float, least_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Throttled(MemoryFilter):
        def claim(self, *_: Any, **__: Any) -> Any:
            raise StateError("filter", "throttled", "try again")

    waits: list[float] = []
    monkeypatch.setattr(MemoryTransport, "release", lambda _self, _message, wait_s: waits.append(wait_s))
    handle = function_of(lambda _: None, MemoryPlane(visibility_s=60), partial(Throttled, Memory()))
    with pytest.raises(StateError):
        handle({"Records": [record("0", event("a").json, attempt, None, age_s)]}, LambdaContext())
    assert waits[0] >= least_s


def test_the_queue_of_an_environment_is_found(fake_aws: FakeAws, monkeypatch: pytest.MonkeyPatch) -> None:
    sqs = boto3.client("sqs")
    create_filter_table(boto3.client("dynamodb"), "eventplane-test-filter")
    dead, _, inbox = (
        sqs.create_queue(QueueName=f"eventplane-test-{READER}-{name}")["QueueUrl"]
        for name in ("dead", "outbox", "inbox")
    )
    policy = redrive(sqs, dead, 5)
    sqs.set_queue_attributes(QueueUrl=inbox, Attributes={"RedrivePolicy": policy, "VisibilityTimeout": "60"})
    handled: list[str] = []

    @handles_events(READER, "test")
    def handle(event: Envelope) -> None:
        handled.append(event.id)

    batch = {"Records": [record("0", event("a").json, 1), record("1", event("a").json, 1)]}
    with monkeypatch.context() as patch:
        patch.setattr(LambdaContext, "get_remaining_time_in_millis", lambda _: 900_000)
        with pytest.raises(LeaseTooLongError) as caught:
            handle(batch, LambdaContext())
    assert (caught.value.visibility_s, caught.value.receives) == (60.0, 4)
    assert handle(batch, LambdaContext()) == {"batchItemFailures": []}
    assert handled == ["a"]


@pytest.mark.source("P17")
def test_early_events_come_again() -> None:
    world = World()
    assert world.invoke(numbered(3), numbered(1)) == [0]
    assert world.invoke(numbered(3)) == [0]
    assert world.invoke(numbered(3), numbered(2)) == []
    assert world.invoke(numbered(5), attempt=MAX_RECEIVES) == []
    assert world.handled == ["1", "2", "3", "5"]


@pytest.mark.source("P17")
@pytest.mark.parametrize("early", [numbered(7), "garbage"])
def test_held_events_block_no_others(early: Envelope | str) -> None:
    world = World()
    assert world.invoke(numbered(1)) == []
    front = [early] * (2 * PREFETCH)
    in_time = numbered(1, senderdevice="home-2")
    kept = world.invoke(*front, in_time)
    assert kept == ([] if early == "garbage" else [*range(len(front))])
    assert world.handled == ["1", "1"]


@pytest.mark.source("P17")
def test_no_event_waits_past_the_gap_timeout() -> None:
    world = World()
    assert world.invoke(numbered(1)) == []
    assert world.invoke(numbered(3), waited_s=GAP_TIMEOUT_S - 60) == [0]
    # What goes before it in the same batch still does.
    assert world.invoke(numbered(5), numbered(4), attempt=2, waited_s=GAP_TIMEOUT_S + 1) == []
    assert world.handled == ["1", "4", "5"]


@pytest.mark.source("P17")
def test_in_an_ordered_inbox_what_follows_a_failure_waits_for_it() -> None:
    world = World()
    world.failing["2"] = KeyError("room")
    events = [numbered(number) for number in (1, 2, 3)]
    assert world.invoke(*events) == [1, 2]
    del world.failing["2"]
    assert world.invoke(*events[1:], attempt=2) == []
    assert world.handled == ["1", "2", "2", "3"]


def test_a_redriven_event_is_handled_once_more() -> None:
    world, one = World(), event()
    marks = ("", "", "run-1.letter-1", "run-1.letter-1", "run-2.letter-1", "", "run-2.letter-2")
    for mark, times in zip(marks, (1, 1, 2, 2, 2, 2, 3), strict=True):
        assert world.invoke(one, run=mark) == []
        assert world.handled.count(one.id) == times


async def _coroutine(_: Envelope) -> None:
    pytest.fail("it ran")


def _generator(_: Envelope) -> Iterator[None]:
    yield pytest.fail("it ran")


async def _async_generator(_: Envelope) -> AsyncIterator[None]:
    yield pytest.fail("it ran")


@pytest.mark.parametrize(
    "handler",
    [_coroutine, lambda each: _coroutine(each), _generator, _async_generator, lambda _: Future[None]()],
)
def test_unfinished_work_is_not_handled(handler: Callable[[Envelope], object]) -> None:
    """Of what such a function returns nothing has run; its event was acknowledged."""
    plane, sent = MemoryPlane(visibility_s=60), event("one")
    function = function_of(handler, plane, partial(MemoryFilter, Memory()))
    with pytest.raises(UnfinishedHandlerError, match="comes again"):
        function({"Records": [record("1", sent.json, 1)]}, LambdaContext())
    plane.deliver(READER, sent)
    with pytest.raises(UnfinishedHandlerError), Inbox(READER, MemoryTransport(plane, READER), None) as inbox:
        inbox.handle(handler, idle_s=0)
    assert plane.pending(READER) == 1
