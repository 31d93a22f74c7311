"""SQS in virtual time: the fake, with readers that are notified when a message becomes visible."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from local.histories.engine import START_S, Engine, Task
from tests.fakes.sqs import FakeQueue, FakeSqs


class Queues(FakeSqs):
    """SQS, which tells a queue's reader that something is there. `sent` has all bodies that a queue took."""

    def __init__(self, engine: Engine, clock: Any) -> None:
        super().__init__(clock)
        self.sent: defaultdict[str, list[str]] = defaultdict(list)
        self._engine = engine
        self.sleepers: dict[str, list[Task]] = {}
        self.copies: dict[str, float] = {}
        """How long after the next message of a queue its copy is delivered, seconds."""
        self.readers: dict[str, Callable[[float], None]] = {}

    def _added(self, queue: FakeQueue, sent: Mapping[str, Any]) -> dict[str, str]:
        self.sent[queue.url].append(sent["MessageBody"])
        answer = super()._added(queue, sent)
        if (after_s := self.copies.pop(queue.name, None)) is not None:
            twin = replace(queue.messages[-1], handles=set())
            twin.visible_ms += round(1_000 * after_s)
            queue.messages.append(twin)
            self.changed(queue, twin.visible_ms)
        return answer

    def changed(self, queue: FakeQueue, at_ms: int) -> None:
        if (look := self.readers.get(queue.name)) is not None:
            look(max(0.0, (at_ms - self.clock()) / 1_000))
        for task in self.sleepers.get(queue.name, ()):
            task.wake_at(at_ms / 1_000 - START_S)

    def wait(self, url: str, seconds: float) -> None:
        """Let the running task wait until something is there, for so long at most."""
        engine = self._engine
        queue = self.queue(url)
        until = engine.now_s + seconds
        due = self.next_ms(url)
        if due is not None:
            until = min(until, max(engine.now_s + 0.001, due / 1_000 - START_S))
        task = engine.task
        if task is None:
            return
        self.sleepers.setdefault(queue.name, []).append(task)
        try:
            task.wait_s(max(0.001, until - engine.now_s))
        finally:
            self.sleepers[queue.name].remove(task)

    def next_ms(self, url: str) -> int | None:
        """When the next message is to be seen."""
        return min((each.visible_ms for each in self.queue(url).messages), default=None)
