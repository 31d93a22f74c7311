"""Send planned deliveries in batches and in parallel: the promised ones first, then those at best effort."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, TypeAlias

from eventplane.contract import Channel, DeliveryGuarantee, Priority
from eventplane.contract.schedules import schedule_of
from eventplane.dead_letter import DEAD_LETTER_TYPE, Refusal
from eventplane.envelope import Envelope
from eventplane.guarantee import FAILED, GUARANTEE_HINT
from eventplane.ledger import SENT_BEFORE, Basis, LedgerRecord
from eventplane.reasons import REPLAY, Outcome, Reason
from eventplane.resource_names import FIFO_SUFFIX
from eventplane.sqs_binding import (
    CONTRACT,
    COUNT,
    RECEIPTS,
    REPLAYED_HINT,
    RETRIES,
    ROUTE,
    SqsMessage,
    pack,
    to_message,
)
from eventplane.values import timestamp_of_ms
from lambdas.common.log import logger
from lambdas.common.sender import Acceptance, Answer, DestinationSender, scheme_of
from lambdas.common.sqs import SCHEMES, batches
from lambdas.common.system import Call, Pool, Threads
from lambdas.router.engine import RoutingEngine
from lambdas.router.planner import Step

MAX_REMEMBERED: Final = 50_000
"""Most deliveries that are remembered; the messages that came first are forgotten first. Ours: 20 MB."""

_Delivery: TypeAlias = tuple[str, str, str, str | None, str | None]
_DecidedBy: TypeAlias = tuple[Basis, str]


class DeliveryMemory:
    """Deliveries of messages that come again, and those among them that the ledger does not have yet.

    It spares copies, and promises nothing: another process, or this one after a restart, delivers again.
    """

    def __init__(self, most: int = MAX_REMEMBERED) -> None:
        self._most = most
        self._delivered: OrderedDict[str, dict[_Delivery, _DecidedBy]] = OrderedDict()
        self._unwritten: list[LedgerRecord] = []

    @property
    def unwritten(self) -> list[LedgerRecord]:
        """Records of earlier invocations that the ledger still has to get."""
        return list(self._unwritten)

    def sort_out(self, steps: Iterable[Step]) -> tuple[list[Step], list[Step]]:
        """Return the `steps` that are still to be made, and records of those that this process has made.

        Only a delivery that was made on another basis, or by another contract, is recorded again: by this one
        it is due as well, and the ledger shows by which contract the message ended.
        """
        new: list[Step] = []
        known: list[Step] = []
        for step in steps:
            before = self._delivered.get(step.record.message_id, {}).get(_delivery(step))
            if before is None or step.event is None:
                new.append(step)
            elif before != _decided_by(step):
                known.append(replace(step, record=replace(step.record, reason=SENT_BEFORE), event=None))
        return new, known

    def end(
        self, facts: Iterable[Step], done: Iterable[str], failed: Collection[str], *, is_written: bool
    ) -> None:
        """Remember the deliveries among `facts` of the `failed` messages, and forget the `done` ones.

        Of what the ledger did not get, the deliveries are kept for it; all else is decided again.
        """
        for id in done:
            self._delivered.pop(id, None)
        tried = [step for step in facts if step.event is not None or step.tried_once]
        for step in tried:
            if step.event is not None and step.record.message_id in failed:
                of_message = self._delivered.setdefault(step.record.message_id, {})
                of_message.setdefault(_delivery(step), _decided_by(step))
        # Without their events, of which there may be 100 KB each.
        self._unwritten = [] if is_written else [*self._unwritten, *(step.record for step in tried)]
        self._forget_the_oldest()

    def _forget_the_oldest(self) -> None:
        excess = sum(map(len, self._delivered.values())) + len(self._unwritten) - self._most
        if excess <= 0:
            return
        unwritten = Counter(each.message_id for each in self._unwritten)
        forgotten: set[str] = set()
        while excess > 0 and self._delivered:
            id, deliveries = self._delivered.popitem(last=False)
            excess -= len(deliveries) + unwritten[id]
            forgotten.add(id)
        # They will be made again, and recorded then. What is left was dropped, and is so again.
        kept = [each for each in self._unwritten if each.message_id not in forgotten]
        self._unwritten = kept[max(0, excess) :]


def _delivery(step: Step) -> _Delivery:
    record = step.record
    return record.sender, record.source, record.id, record.route, record.destination


def _decided_by(step: Step) -> _DecidedBy:
    return step.record.basis, step.record.contract_version


THREADS: Final = 8
"""Most calls to SQS in flight. Ours: a call mostly waits for SQS, so that 10,000 events at 10 ms a call take
1.3 s instead of 10; botocore keeps 10 connections open."""

_SQS: Final = "sqs"
_LATER: Final = Answer(Acceptance.AGAIN, "there was no time left")


class SendingTime:
    """Calls start with `reserve_ms` left of `remaining_ms`; with `rest_ms` left none is waited for."""

    def __init__(self, remaining_ms: Callable[[], int], reserve_ms: int, rest_ms: int) -> None:
        self._remaining_ms = remaining_ms
        self._reserve_ms = reserve_ms
        self._rest_ms = rest_ms

    def may_start(self) -> bool:
        """Return whether there is time for one more call."""
        return self._remaining_ms() >= self._reserve_ms

    def answers_s(self) -> float:
        """The wait for the answers of calls in flight, seconds."""
        return max(0, self._remaining_ms() - self._rest_ms) / 1_000


class Dispatch:
    """Sends to `queues`, which has the URL of each destination, what is not in its `memory`."""

    def __init__(self, sender: DestinationSender, queues: Mapping[str, str], threads: Threads) -> None:
        self.memory = DeliveryMemory()
        self._sender = sender
        self._queues = queues
        self._threads = threads
        self._pools: dict[str, Pool] = {}

    def send(
        self, engine: RoutingEngine, steps: Iterable[Step], now_ms: int, time: SendingTime
    ) -> tuple[list[Step], set[str]]:
        """Send what `steps` deliver, as long as there is `time`.

        Urgent events go first, then message by message in the order of `steps`, so that little is half sent
        when time ends. Returns the steps that are facts now, those without an event among them, and the ids
        of messages that have to come again. An event that its destination will never take becomes a dead
        letter on that route. Deliveries at best effort go last; one that fails is dropped, and its message
        does not come again.
        """
        planned, done = self.memory.sort_out(steps)
        done += [step for step in planned if not step.event]
        failed: set[str] = set()
        letters: list[Step] = []
        for step, answer in self._answers(engine, (each for each in planned if not each.tried_once), time):
            if answer.acceptance is Acceptance.TAKEN:
                done.append(step)
            elif answer.acceptance is Acceptance.NEVER and step.record.type != DEAD_LETTER_TYPE:
                letters += engine.planner.dead(step, Refusal(Reason.NOT_TAKEN, answer.detail), now_ms)
            else:
                # A letter that is not taken stays with its original: the queue's dead-letter queue gets both.
                failed.add(step.record.message_id)
        letters, known = self.memory.sort_out(letters)
        done += [*known, *(step for step in letters if not step.event)]
        for step, answer in self._answers(engine, letters, time):
            if answer.acceptance is Acceptance.TAKEN:
                done.append(step)
            else:
                failed.add(step.record.message_id)
        for step, answer in self._answers(engine, (each for each in planned if each.tried_once), time):
            done.append(step if answer.acceptance is Acceptance.TAKEN else _dropped(step))
        return done, failed

    def _answers(
        self, engine: RoutingEngine, steps: Iterable[Step], time: SendingTime
    ) -> Iterator[tuple[Step, Answer]]:
        """Yield each step that sends something with its answer, as the answers come."""
        waiting = self._calls(engine, steps)
        in_flight: dict[Call[list[Answer]], _Call] = {}
        broken: set[tuple[str, str]] = set()
        while in_flight or any(waiting.values()):
            while (call := _next_call(waiting, in_flight.values())) is not None:
                if not time.may_start():
                    yield from (
                        (step, _LATER) for each in waiting.values() for call in each for step in call.steps
                    )
                    waiting.clear()
                    break
                waiting[call.protocol].remove(call)
                ready, late = call.parted(broken)
                yield from ((step, _LATER) for step in late)
                if ready.parcels:
                    in_flight[self._start(ready)] = ready
            ended = self._threads.ended(in_flight, time.answers_s())
            if in_flight and not ended:
                # Whatever becomes of them, the time that is left is the ledger's.
                yield from self._given_up(in_flight)
            for future in ended:
                call, answers = in_flight.pop(future), future.result()
                broken |= call.broken_groups(answers)
                for parcel, answer in zip(call.parcels, answers, strict=True):
                    if answer.acceptance is Acceptance.NEVER and len(parcel.steps) > 1:
                        # One of its events is the cause: alone, each gets an answer of its own.
                        waiting.setdefault(call.protocol, [])[:0] = call.with_single_events(parcel)
                    else:
                        yield from ((step, answer) for step in parcel.steps)

    def _given_up(self, in_flight: dict[Call[list[Answer]], _Call]) -> Iterator[tuple[Step, Answer]]:
        logger.error("calls do not end in time", urls=sorted({call.url for call in in_flight.values()}))
        for future, call in in_flight.items():
            # What waits for its thread must not be sent by a later invocation.
            future.cancel()
            yield from ((step, _LATER) for step in call.steps)
        in_flight.clear()

    def _calls(self, engine: RoutingEngine, steps: Iterable[Step]) -> dict[str, list[_Call]]:
        """Return the calls of each protocol in the order in which they are made, SQS first."""
        by_destination: defaultdict[str, defaultdict[str, list[tuple[int, Step]]]]
        by_destination = defaultdict(lambda: defaultdict(list))
        for number, step in enumerate(step for step in steps if step.event):
            by_destination[str(step.record.destination)][step.record.contract_version].append((number, step))
        calls: dict[str, list[_Call]] = {_SQS: []}
        for destination, by_version in by_destination.items():
            parcels = [
                parcel
                for version, found in by_version.items()
                for parcel in _parcels(found, engine.channel(destination, version))
            ]
            for call in _batched(self._queues[destination], parcels):
                calls.setdefault(call.protocol, []).append(call)
        for each in calls.values():
            each.sort(key=lambda call: call.place)
        return calls

    def _start(self, call: _Call) -> Call[list[Answer]]:
        if call.protocol not in self._pools:
            self._pools[call.protocol] = self._threads.pool(_most_in_flight(call.protocol))
        return self._pools[call.protocol].submit(self._sender.send, call.url, call.messages)


@dataclass(frozen=True, slots=True, eq=False)
class _Parcel:
    """A `message` with the events of `steps`; `place` orders parcels: by priority, then as planned."""

    steps: Sequence[Step]
    message: SqsMessage
    place: tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    """One batch of `parcels` for the destination at `url`."""

    url: str
    parcels: list[_Parcel]

    @property
    def place(self) -> tuple[int, int]:
        return self.parcels[0].place

    @property
    def steps(self) -> Iterator[Step]:
        return (step for parcel in self.parcels for step in parcel.steps)

    @property
    def messages(self) -> list[SqsMessage]:
        return [parcel.message for parcel in self.parcels]

    @property
    def protocol(self) -> str:
        scheme = scheme_of(self.url)
        return _SQS if scheme in SCHEMES else scheme

    @property
    def is_fifo(self) -> bool:
        return self.url.endswith(FIFO_SUFFIX) and self.protocol == _SQS

    def parted(self, broken: set[tuple[str, str]]) -> tuple[_Call, list[Step]]:
        """Return what can be sent, and the steps that would overtake an earlier one of their group."""
        if not broken or not self.is_fifo:
            return self, []
        ready = [each for each in self.parcels if (self.url, each.message.group) not in broken]
        late = [each for each in self.parcels if (self.url, each.message.group) in broken]
        return _Call(self.url, ready), [step for parcel in late for step in parcel.steps]

    def broken_groups(self, answers: Iterable[Answer]) -> set[tuple[str, str]]:
        """Return the groups of a FIFO queue in which a message has to be sent again."""
        if not self.is_fifo:
            return set()
        pairs = zip(self.messages, answers, strict=True)
        return {
            (self.url, message.group) for message, answer in pairs if answer.acceptance is Acceptance.AGAIN
        }

    def with_single_events(self, parcel: _Parcel) -> list[_Call]:
        """Return calls with each event of one `parcel` in a message of its own."""
        hints = {name: each for name, each in parcel.message.hints.items() if name != COUNT}
        return list(_batched(self.url, [_alone(step, parcel.place, hints) for step in parcel.steps]))


def _most_in_flight(protocol: str) -> int:
    # A sender of another protocol may take seconds and is used by one thread; no SQS call waits for it.
    return THREADS if protocol == _SQS else 1


def _next_call(waiting: Mapping[str, Sequence[_Call]], in_flight: Collection[_Call]) -> _Call | None:
    """Return the first call that may start: a FIFO queue gets one at a time."""
    busy = {call.url for call in in_flight if call.is_fifo}
    for protocol, calls in waiting.items():
        if sum(call.protocol == protocol for call in in_flight) < _most_in_flight(protocol):
            for call in calls:
                if call.url not in busy:
                    return call
    return None


def _parcels(found: Sequence[tuple[int, Step]], channel: Channel) -> Iterator[_Parcel]:
    """Put events for `channel` into messages: of one route, decided alike, and never urgent ones together."""
    most = channel.events_per_message
    together: defaultdict[tuple[int, tuple[tuple[str, str], ...]], list[tuple[int, Step]]] = defaultdict(list)
    for number, step in found:
        hints = _hints(step, channel)
        if most == 1 or _rank(step) == Priority.URGENT.rank:
            yield _alone(step, (_rank(step), number), hints)
        else:
            together[_rank(step), tuple(hints.items())].append((number, step))
    for (rank, shared), group in together.items():
        left = iter(group)
        for message in pack([_event(step) for _, step in group], dict(shared), most):
            numbered = list(islice(left, len(message.events)))
            yield _Parcel([step for _, step in numbered], message, (rank, numbered[0][0]))


def _alone(step: Step, place: tuple[int, int], hints: Mapping[str, str]) -> _Parcel:
    return _Parcel([step], to_message(_event(step), hints), place)


def _batched(url: str, parcels: Iterable[_Parcel]) -> Iterator[_Call]:
    """Yield calls with the `parcels` in the order of their places."""
    ordered = sorted(parcels, key=lambda each: each.place)
    left = iter(ordered)
    for batch in batches([each.message for each in ordered]):
        yield _Call(url, list(islice(left, len(batch))))


def _rank(step: Step) -> int:
    return Priority(step.record.priority).rank


def _dropped(step: Step) -> Step:
    return replace(step, record=replace(step.record, outcome=Outcome.DROPPED, reason=FAILED), event=None)


def _event(step: Step) -> Envelope:
    assert step.event is not None  # noqa: S101 - `_calls` takes no other steps
    return step.event


def _hints(step: Step, channel: Channel) -> dict[str, str]:
    hints = {
        ROUTE: str(step.record.route),
        CONTRACT: step.record.contract_version,
        RETRIES: schedule_of(channel, Priority(step.record.priority)).hint,
    }
    if step.tried_once:
        hints[GUARANTEE_HINT] = DeliveryGuarantee.BEST_EFFORT
    elif channel.asks_for_receipts:
        hints[RECEIPTS] = str(channel.receipts_percent)
    if step.record.reason == REPLAY:
        hints[REPLAYED_HINT] = timestamp_of_ms(step.record.decided_at_ms)
    return hints
