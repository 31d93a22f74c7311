"""A Lambda function with an SQS event source: batches, timeouts and partial batch responses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from eventplane_aws.rules import LAMBDA_BATCH, LAMBDA_CHAIN, LAMBDA_CONCURRENCY, SQS_RECEIVE
from lambdas.common.queue import Invocation, read_messages
from lambdas.common.queue_function import QueueReader, Redelivery
from parts.simulate.timeline import START_S, Killed

if TYPE_CHECKING:
    from lab.histories.cloud import CloudModel
    from stacks.settings import FunctionSize


CHAIN_ENDED: Final = "a chain of messages is ended"


def lambda_event(queue: str, messages: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return what Lambda calls a function with for `messages`, as SQS returned them from the URL `queue`."""
    return {
        "Records": [
            {
                "messageId": each["MessageId"],
                "receiptHandle": each["ReceiptHandle"],
                "eventSourceARN": f"arn:aws:sqs:::{queue.rpartition('/')[2]}",
                "body": each["Body"],
                "attributes": each["Attributes"],
                "messageAttributes": {
                    name: {"stringValue": value.get("StringValue")}
                    for name, value in each.get("MessageAttributes", {}).items()
                },
            }
            for each in messages
        ]
    }


class FunctionModel:
    """A Lambda function that SQS feeds: batches, processes, timeouts and partial responses.

    Its `size` says how many and how long. What its window holds back is in flight meanwhile. The chain of an
    invocation is that of its first message. AWS Lambda ends a long one, but for a function that `may_recur`.
    One that several queues feed has one of these for each mapping, which share the `idle` processes.
    """

    def __init__(
        self,
        cloud: CloudModel,
        name: str,
        queue: str,
        wire: Callable[[str], Any],
        size: FunctionSize,
        *,
        may_recur: bool = False,
        idle: list[tuple[int, Any]] | None = None,
    ) -> None:
        self.size = size
        self.may_recur = may_recur
        self._held: list[dict[str, Any]] = []
        self._sizes: list[int] = []
        self._window_ends_s = 0.0
        self.name = name
        self._cloud = cloud
        self._queue = queue
        self._wire = wire
        self._idle = [] if idle is None else idle
        self._running = 0
        self.late: list[tuple[float, float]] = []
        """When what came again was first received, and when it came, seconds."""
        self._looks_at: float | None = None
        cloud.sqs.readers[queue.rpartition("/")[2]] = self
        self.look_soon(0.0)

    def look_soon(self, seconds: float) -> None:
        """Look at the queue in so many seconds, at the latest."""
        engine = self._cloud.engine
        at = engine.now_s + seconds
        if self._looks_at is None or at < self._looks_at:
            self._looks_at = at
            engine.at(at, lambda: self._look(at))

    def _look(self, at: float) -> None:
        if self._looks_at != at:
            return
        self._looks_at = None
        cloud, size, held, now_s = self._cloud, self.size, self._held, self._cloud.engine.now_s
        if self._running >= size.max_concurrency:
            return  # the end of an invocation looks again
        is_down = "sqs" in cloud.weather.down
        due_ms = cloud.sqs.next_ms(self._queue)
        is_empty = is_down or due_ms is None or due_ms > cloud.engine.now_ms
        most = min(SQS_RECEIVE.most, size.batch_size - len(held))
        messages = [] if is_empty else self._receive(most)
        if messages and not held:
            self._window_ends_s = now_s + size.batch_window_s
        held += messages
        self._sizes += (len(each["Body"].encode()) for each in messages)
        batch = held[: sum(size <= LAMBDA_BATCH.most for size in accumulate(self._sizes))]
        is_full = len(batch) == size.batch_size or len(batch) < len(held)
        if held and (is_full or now_s >= self._window_ends_s or cloud.is_ending):
            self._held, self._sizes = held[len(batch) :], self._sizes[len(batch) :]
            if cloud.executions < LAMBDA_CONCURRENCY.most:
                self._running += 1
                cloud.executions += 1
                cloud.engine.spawn(self.name, lambda: self._invoke(batch))
            else:  # the messages come again when their visibility timeout is over
                cloud.engine.note(self.name, LAMBDA_CONCURRENCY.answer, is_fault=True)
        if messages and len(messages) == most:
            self.look_soon(0.0)  # there may be more
        elif is_down:
            self.look_soon(1.0)
        elif (next_ms := due_ms if is_empty else cloud.sqs.next_ms(self._queue)) is not None:
            self.look_soon(max(0.05, (next_ms - cloud.engine.now_ms) / 1_000))
        if self._held:
            self.look_soon(max(0.0, self._window_ends_s - now_s))

    def _receive(self, most: int) -> list[dict[str, Any]]:
        named: dict[str, Any] = {"AttributeNames": ["All"], "MessageAttributeNames": ["All"]}
        answer = self._cloud.sqs.receive_message(QueueUrl=self._queue, MaxNumberOfMessages=most, **named)
        found: list[dict[str, Any]] = answer.get("Messages", [])
        return found

    def _chain(self, message: dict[str, Any]) -> dict[str, int]:
        """How often each function was called in the chain of a message, with the call of this one."""
        before = self._cloud.sqs.chains.get(message["MessageId"], {})
        return {**before, self.name: before.get(self.name, 0) + 1}

    def _within_bounds(self, message: dict[str, Any]) -> bool:
        if self.may_recur or self._chain(message)[self.name] <= LAMBDA_CHAIN.most:
            return True
        self._cloud.engine.note(self.name, CHAIN_ENDED, is_fault=True)
        self._cloud.sqs.drop(self._queue, message["ReceiptHandle"])
        return False

    def _invoke(self, received: list[dict[str, Any]]) -> None:
        cloud, engine = self._cloud, self._cloud.engine
        messages = [each for each in received if self._within_bounds(each)]
        if not messages:
            self._ended()
            return
        # What a thread began outlives its invocation; a process that ended in it takes no other.
        deaths = cloud.weather.deaths[self.name]
        self._idle[:] = [each for each in self._idle if each[0] == deaths]
        process = self._idle.pop()[1] if self._idle else self._wire(self.name)
        deadline_s = engine.now_s + self.size.timeout_s
        task = engine.task
        if task is not None:
            task.chain = self._chain(messages[0])
        watchdog = engine.at(deadline_s, task.kill) if task else None
        remaining_ms = lambda: max(0, round(1_000 * (deadline_s - engine.now_s)))  # noqa: E731
        is_well = False
        try:
            of_each = [each["Attributes"] for each in messages]
            attempt = max(int(each["ApproximateReceiveCount"]) for each in of_each)
            engine.note(self.name, f"{len(messages)} message(s), attempt {attempt}")
            if attempt > 1:
                first_ms = min(int(each["ApproximateFirstReceiveTimestamp"]) for each in of_each)
                self.late.append((first_ms / 1_000 - START_S, engine.now_s))
            answer = self._answer(process, lambda_event(self._queue, messages), remaining_ms)
            again = {each["itemIdentifier"] for each in answer["batchItemFailures"]}
            is_well = True
            for each in messages:
                if each["MessageId"] not in again:
                    cloud.sqs.delete_message(QueueUrl=self._queue, ReceiptHandle=each["ReceiptHandle"])
        except Killed:
            engine.note(self.name, "ends half-way", is_fault=True)
            raise
        finally:
            if watchdog is not None:
                watchdog.is_off = True
            if is_well:
                self._idle.append((deaths, process))
            self._ended()

    def _ended(self) -> None:
        self._running -= 1
        self._cloud.executions -= 1
        self.look_soon(0.0)

    def _answer(self, process: Any, event: dict[str, Any], remaining_ms: Callable[[], int]) -> Any:
        """Run what was wired; its answer to SQS."""
        reader: QueueReader = process
        cloud, batch, patience = self._cloud, read_messages(event), reader.patience
        failed = reader.process(batch, Invocation(f"{self.name}-{next(cloud.numbers)}", remaining_ms))
        sqs = cloud.client(self.name, "sqs", patience)
        redelivery = Redelivery(
            sqs,
            self._queue,
            cloud.weather.share,
            lambda: cloud.engine.now_ms,
            reader.schedule(batch[0].queue),
            patience.worst_call_ms,
        )
        return redelivery.answer(batch, failed, remaining_ms)
