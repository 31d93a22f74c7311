"""SQS in virtual time: the fake, with readers that are notified when a message becomes visible."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from lab.histories.engine import Engine, Fiber
from parts.simulate.timeline import START_S
from tests.fakes.sqs import FakeMessage, FakeQueue, FakeSqs

if TYPE_CHECKING:
    from lab.histories.function import FunctionModel


_LETTERS: Final = "deadLetterTargetArn"


class Queues(FakeSqs):
    """SQS, which tells a queue's reader that something is there.

    `sent` has all bodies that a queue took, `taken` the messages; `chains` is where these come from, by id.
    """

    def __init__(self, engine: Engine, clock: Any, share: Callable[[], float]) -> None:
        super().__init__(clock)
        self._share = share
        self._moved: dict[str, int] = {}
        self.sent: defaultdict[str, list[str]] = defaultdict(list)
        self.taken: defaultdict[str, list[FakeMessage]] = defaultdict(list)
        self.chains: dict[str, Mapping[str, int]] = {}
        self._engine = engine
        self.sleepers: dict[str, list[Fiber]] = {}
        self.readers: dict[str, FunctionModel] = {}
        self.copies: dict[str, tuple[float, float]] = {}
        """Until when each message of a queue comes twice, and how long after it the copy, seconds."""
        self.takes_part = False
        """Whether entries of batches are refused, each with an even chance."""

    def _added(self, queue: FakeQueue, sent: Mapping[str, Any]) -> dict[str, str]:
        self.sent[queue.url].append(sent["MessageBody"])
        answer = super()._added(queue, sent)
        self.taken[queue.url] += queue.messages[-1:]
        if (task := self._engine.task) is not None and task.chain:
            self.chains[queue.messages[-1].id] = task.chain
        until_s, after_s = self.copies.get(queue.name, (0.0, 0.0))
        if self._engine.now_s < until_s:
            twin = replace(queue.messages[-1], handles=set(), copy=1)
            twin.visible_ms += round(1_000 * after_s)
            queue.messages.append(twin)
            self.changed(queue, twin.visible_ms)
        return answer

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> Any:  # noqa: N803
        taken = [each for each in Entries if not self.takes_part or self._share() < 0.5]
        answer = super().send_message_batch(QueueUrl=QueueUrl, Entries=taken) if taken else {}
        failed = [
            {"Id": each["Id"], "SenderFault": False, "Code": "InternalError", "Message": "Not now."}
            for each in Entries
            if each not in taken
        ]
        return {**answer, "Failed": [*answer.get("Failed", ()), *failed]} if failed else answer

    def drop(self, url: str, handle: str) -> None:
        """Move a message that was received to the dead-letter queue, whatever its receives."""
        queue = self.queue(url)
        message = next(each for each in queue.messages if handle in each.handles)
        queue.messages.remove(message)
        self.queue(queue.redrive[_LETTERS].rpartition(":")[2]).messages.append(message)

    def start_message_move_task(self, *, SourceArn: str) -> Any:  # noqa: N803
        """Move what a dead-letter queue has at once to the queue that it is of."""
        letters = self.queues[SourceArn.rpartition(":")[2]]
        source = next(each for each in self.queues.values() if each.redrive.get(_LETTERS) == SourceArn)
        self._moved[SourceArn] = len(letters.messages)
        for each in letters.messages:
            # A new message: it was not received yet.
            moved = replace(each, receives=0, first_received_ms=0, visible_ms=self.clock())
            source.messages.append(moved)
            self.changed(source, self.clock())
        letters.messages.clear()
        return {"TaskHandle": SourceArn}

    def list_message_move_tasks(self, *, SourceArn: str, MaxResults: int) -> Any:  # noqa: N803, ARG002
        done = {"Status": "COMPLETED", "ApproximateNumberOfMessagesMoved": self._moved.get(SourceArn, 0)}
        return {"Results": [done]}

    def _delete(self, queue: FakeQueue, handle: str) -> None:
        super()._delete(queue, handle)
        if queue.is_fifo:
            self.changed(queue, self.clock())  # the next of its group can be received

    def changed(self, queue: FakeQueue, at_ms: int) -> None:
        if (reader := self.readers.get(queue.name)) is not None:
            reader.look_soon(max(0.0, (at_ms - self.clock()) / 1_000))
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

    def has_visible(self, url: str) -> bool:
        """Return whether a message can be received now."""
        return bool(self._receivable(self.queue(url), self.clock()))

    def next_ms(self, url: str) -> int | None:
        """When the next message is to be seen; in a FIFO queue a group waits for its last one in flight."""
        queue = self.queue(url)
        if not queue.is_fifo:
            return min((each.visible_ms for each in queue.messages), default=None)
        groups: defaultdict[str | None, int] = defaultdict(int)
        for each in queue.messages:
            groups[each.group] = max(groups[each.group], each.visible_ms)
        return min(groups.values(), default=None)
