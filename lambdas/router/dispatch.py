"""Send what was planned in batches across messages: what is promised first, then what is at best effort."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from eventplane.contract import DeliveryGuarantee, Priority
from eventplane.delivery import DEAD_LETTER_TYPE, Outcome
from eventplane.guarantee import FAILED, GUARANTEE_HINT
from eventplane.sqs_binding import SqsMessage, to_message
from lambdas.common.sender import Answer, Fate, Sender
from lambdas.common.sqs import SCHEMES as SQS
from lambdas.common.sqs import batches
from lambdas.router.engine import Engine
from lambdas.router.planner import Step
from lambdas.router.senders import scheme_of

_LATER = Answer(Fate.AGAIN, "there was no time left")


class Dispatch:
    """Sends to `queues`, which has the URL of each destination."""

    def __init__(self, sender: Sender, queues: Mapping[str, str]) -> None:
        self._sender = sender
        self._queues = queues

    def send(
        self, engine: Engine, steps: Iterable[Step], now_ms: int, has_time: Callable[[], bool]
    ) -> tuple[list[Step], set[str]]:
        """Send what `steps` deliver, as long as there `has_time`.

        Returns the steps that are facts now, those without an event among them, and the ids of messages that
        have to come again. An event that its destination will never take is a dead letter on that route. What
        is at best effort goes last; where it fails, it is dropped, and its message does not come again.
        """
        planned = list(steps)
        done = [step for step in planned if not step.event]
        failed: set[str] = set()
        letters: list[Step] = []
        for step, answer in self._answers((each for each in planned if not each.tried_once), has_time):
            if answer.fate is Fate.TAKEN:
                done.append(step)
            elif answer.fate is Fate.NEVER and step.record.type != DEAD_LETTER_TYPE:
                letters += engine.planner.not_taken(step, answer.detail, now_ms)
            else:
                # A letter that is not taken stays with its original: the queue's dead-letter queue gets both.
                failed.add(step.record.message_id)
        done += [step for step in letters if not step.event]
        for step, answer in self._answers(letters, has_time):
            if answer.fate is Fate.TAKEN:
                done.append(step)
            else:
                failed.add(step.record.message_id)
        for step, answer in self._answers((each for each in planned if each.tried_once), has_time):
            done.append(step if answer.fate is Fate.TAKEN else _dropped(step))
        return done, failed

    def _answers(self, steps: Iterable[Step], has_time: Callable[[], bool]) -> Iterator[tuple[Step, Answer]]:
        """Each step that sends something, with its answer: the most urgent first, of these SQS.

        A server of another protocol may take seconds to answer, and no alarm in a queue waits for it.
        """
        by_destination: defaultdict[str, list[Step]] = defaultdict(list)
        for step in sorted(steps, key=lambda step: Priority(step.record.priority).rank):
            if step.event:
                by_destination[str(step.record.destination)].append(step)
        for destination, waiting in sorted(by_destination.items(), key=self._turn):
            for batch in batches([_message(step) for step in waiting]):
                tried, waiting = waiting[: len(batch)], waiting[len(batch) :]
                if has_time():
                    yield from zip(tried, self._sender.send(self._queues[destination], batch), strict=True)
                else:
                    yield from ((step, _LATER) for step in tried)

    def _turn(self, to_send: tuple[str, list[Step]]) -> tuple[int, bool]:
        destination, (first, *_) = to_send
        return Priority(first.record.priority).rank, scheme_of(self._queues[destination]) not in SQS


def _dropped(step: Step) -> Step:
    return replace(step, record=replace(step.record, outcome=Outcome.DROPPED, reason=FAILED), event=None)


def _message(step: Step) -> SqsMessage:
    assert step.event is not None  # noqa: S101 - `_answers` makes no other messages
    hints = {"route": str(step.record.route), "contract": step.record.contract_version}
    if step.tried_once:
        hints[GUARANTEE_HINT] = DeliveryGuarantee.BEST_EFFORT
    return to_message(step.event, hints)
