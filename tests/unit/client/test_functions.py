"""Lambda functions that read an inbox: what the queue keeps, and what it does not."""

from __future__ import annotations

from typing import Any

import pytest

from eventplane.envelope import Envelope
from eventplane_client.functions import RESERVE_MS, handles_events
from eventplane_client.memory import MemoryPlane, MemoryTransport
from eventplane_client.memory_filter import Memory, MemoryFilter
from eventplane_client.ports import Message
from eventplane_client.telemetry import Handling, NoTelemetry
from tests.unit.client.worlds import MAX_RECEIVES, READER, event
from tests.unit.lambdas.support import LambdaContext


class World:
    """A function whose handler notes what it gets and fails for the ids in `failing`."""

    def __init__(self, **options: Any) -> None:
        self.plane = MemoryPlane(max_receives=MAX_RECEIVES)
        self.memory = Memory()
        self.handled: list[str] = []
        self.failing: dict[str, BaseException] = {}
        self.context = LambdaContext()
        self._options = options

    def invoke(self, *bodies: Envelope | str, attempt: int = 1, group: str | None = None) -> list[int]:
        """Which of the messages the queue keeps, by place; in a process of its own."""

        @handles_events(
            READER,
            "test",
            wiring=lambda: (MemoryTransport(self.plane, READER), MemoryFilter(self.memory)),
            on_notice=lambda _: None,
            **self._options,
        )
        def handle(event: Envelope) -> None:
            self.handled.append(event.id)
            if event.id in self.failing:
                raise self.failing[event.id]

        records = [
            {
                "messageId": str(at),
                "body": body.json if isinstance(body, Envelope) else body,
                "attributes": {
                    "ApproximateReceiveCount": str(attempt),
                    "SentTimestamp": "1767225600000",
                    **({"MessageGroupId": group} if group else {}),
                },
                "messageAttributes": {"route": {"stringValue": "alarms", "dataType": "String"}},
            }
            for at, body in enumerate(bodies)
        ]
        answer = handle({"Records": records}, self.context)
        return [int(each["itemIdentifier"]) for each in answer["batchItemFailures"]]


def test_telemetry_is_told_when_and_over_which_route_an_event_came() -> None:
    class Watch(NoTelemetry):
        def begin(self, participant: str, event: Envelope, message: Message) -> Handling:
            seen.append((participant, event.id, message.sent_at_ms, message.route))
            return super().begin(participant, event, message)

    seen: list[object] = []
    assert World(telemetry=Watch()).invoke(event("a")) == []
    assert seen == [(READER, "a", 1_767_225_600_000, "alarms")]


def test_what_fails_is_kept_and_the_rest_is_done() -> None:
    world = World()
    world.failing["b"] = KeyError("room")
    events = [event(id) for id in "abc"]
    assert world.invoke(*events) == [1]
    assert world.handled == ["a", "b", "c"]
    del world.failing["b"]
    assert world.invoke(*events, attempt=2) == []
    assert world.handled == ["a", "b", "c", "b"]


def test_at_the_limit_it_is_a_dead_letter_with_the_exception_as_reason() -> None:
    world = World()
    world.failing["a"] = KeyError("room")
    assert world.invoke(event("a"), attempt=MAX_RECEIVES) == []
    assert [each.attributes["deadletterreason"] for each in world.plane.events] == ["KeyError"]


def test_what_is_no_event_is_a_dead_letter() -> None:
    world = World()
    assert world.invoke("garbage", event("a")) == []
    assert world.handled == ["a"]
    assert [each.attributes["deadletterreason"] for each in world.plane.events] == ["not_json"]


def test_in_a_fifo_queue_what_follows_in_the_group_waits() -> None:
    world = World()
    world.failing["a"] = ValueError()
    assert world.invoke(*(event(id) for id in "abc"), group="g") == [0, 1, 2]
    assert world.handled == ["a"]


def test_what_was_begun_by_a_function_that_was_killed_is_in_doubt() -> None:
    world = World(on_doubt=lambda event: event.id == "again")
    for id in ("again", "done"):
        world.failing[id] = SystemExit()
        with pytest.raises(SystemExit):
            world.invoke(event(id))
    # Its claims were given back at the exit; a kill leaves them.
    for id in ("again", "done"):
        MemoryFilter(world.memory).claim([_digest(id)])
    world.failing.clear()
    world.handled.clear()
    assert world.invoke(event("again"), event("done")) == []
    assert world.handled == ["again"]


@pytest.mark.parametrize("fails", [False, True])
def test_what_there_is_no_time_for_comes_again(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    world = World()
    if fails:
        world.failing["a"] = ValueError()
    monkeypatch.setattr(LambdaContext, "get_remaining_time_in_millis", lambda _: RESERVE_MS - 1)
    assert world.invoke(event("a"), event("b")) == ([0, 1] if fails else [1])
    assert world.handled == ["a"]


def _digest(id: str) -> bytes:
    from eventplane_client.ports import digest

    return digest(event(id))
