"""Readers of a cloud service's inbox: the client library's, over SQS and the filter in DynamoDB."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from eventplane.envelope import Envelope
from eventplane.limits import MAX_RECEIVES
from eventplane_aws.rules import SQS_WAIT
from eventplane_client.dynamodb_duplicates import DynamoDbFilter
from eventplane_client.errors import AlreadySettledError, BatchFailedError, NothingThereError
from eventplane_client.errors import ClientError as EventPlaneClientError
from eventplane_client.functions import Handler, handles_events
from eventplane_client.inbox import Inbox, Received
from eventplane_client.ports import Lease, MessageFilter, Mode
from eventplane_client.receipts import Receipts
from eventplane_client.sqs import FIRST_VISIBILITY_S, SqsTransport
from eventplane_client.system import System
from lab.histories.cloud import ENVIRONMENT, PLANE, CloudModel
from lab.histories.engine import Engine
from lab.histories.function import FunctionModel
from lab.histories.threads import Program
from parts.simulate.timeline import Killed
from stacks.settings import FunctionSize

RESTART_S: Final = 3.0
AGAIN_S: Final = 1.0
"""How long a reader waits after an error."""
IDLE_S: Final = 600.0
READER: Final = FunctionSize(memory_mib=512, timeout_s=30, batch_size=10)
"""A participant's function: a claim outlives its timeout, and a message is hidden for longer still."""

POLLS_S: Final = 0.04
"""How late a function's poll may see a message, seconds: the other reader is as often the first."""


EventKey = tuple[str, str, str]
"""A participant, and the source and the id of an event."""


class DependencyDownError(Exception):
    """The telephone exchange is down."""


@dataclass
class Handled:
    """When each reader of the cloud handled each event, by participant, source and id.

    `settled` are those that it acknowledged, `doubted` those in doubt afterwards.
    """

    engine: Engine
    done: dict[EventKey, list[float]] = field(default_factory=dict)
    settled: set[EventKey] = field(default_factory=set)
    doubted: list[EventKey] = field(default_factory=list)

    def note(self, participant: str, event: Envelope) -> None:
        """Record that `participant` handles `event` now."""
        self.done.setdefault(_key(participant, event), []).append(self.engine.now_s)
        self.engine.note(participant, f"handles {event.id}")

    def is_open(self, participant: str, event: Envelope) -> bool:
        """Return whether `participant` has not handled `event`: what a program says of one in doubt."""
        key = _key(participant, event)
        if key in self.settled:
            self.doubted.append(key)
        return key not in self.done


def _key(participant: str, event: Envelope) -> EventKey:
    return participant, event.source, event.id


class LongPoll:
    """The client of one reader, whose receptions wait as long as SQS lets them."""

    def __init__(self, cloud: CloudModel, wire: Any) -> None:
        self._cloud = cloud
        self._wire = wire

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wire, name)

    def receive_message(self, *, QueueUrl: str, WaitTimeSeconds: int = 0, **request: Any) -> Any:  # noqa: N803
        cloud, engine = self._cloud, self._cloud.engine
        # A poll of 20 s that brings nothing is followed by the next: as well one long one.
        give_up = engine.now_s + (IDLE_S if WaitTimeSeconds == SQS_WAIT.most else WaitTimeSeconds)
        while True:
            # One request waits at SQS for a message, and its answer comes with that.
            while engine.now_s < give_up and not cloud.sqs.has_visible(QueueUrl):
                cloud.sqs.wait(QueueUrl, give_up - engine.now_s)
            answer = self._wire.receive_message(QueueUrl=QueueUrl, **request)
            if answer.get("Messages") or engine.now_s >= give_up:
                return answer


class CloudReader:
    """One process that reads for `participant`; it is started again when it dies."""

    def __init__(self, cloud: CloudModel, participant: str, handled: Handled, number: int = 0) -> None:
        self.name = f"{participant}-{number}"
        self.participant = participant
        self.is_dependency_down = False
        self.fuse = 0
        self._cloud = cloud
        self._handled = handled
        self.start()

    def start(self) -> None:
        engine = self._cloud.engine
        self._program = Program(engine, self.name)
        self._program.start(self.name, self._run).when_over(self._ended)

    def kill(self) -> None:
        self._program.kill()

    def _step(self) -> None:
        """One of the steps between which the process can end; `fuse` counts down to that one."""
        self.fuse -= 1
        if not self.fuse:
            raise Killed

    def _ended(self) -> None:
        self._program.kill()
        self._cloud.engine.after(RESTART_S, self.start)

    def _run(self) -> None:
        system = self._program.system(self._cloud.weather.draw)
        sqs = LongPoll(self._cloud, self._cloud.client(self.name, "sqs"))
        transport, open_filter = _wired(self._cloud, self.name, self.participant, sqs, system)
        filter = open_filter(lambda: float(PLANE.inbox_visibility_s))
        inbox = Inbox(
            self.participant,
            transport,
            filter,
            mode=Mode.EXACTLY_ONCE,
            on_notice=lambda _: None,
            on_doubt=partial(self._handled.is_open, self.participant),
            system=system,
        )
        while True:
            try:
                self._handle(inbox.receive())
            except NothingThereError:
                pass
            except EventPlaneClientError:
                self._cloud.engine.sleep(AGAIN_S)

    def _handle(self, received: Received) -> None:
        """Handle an event, and settle it until that is done: it would be in hand for ever."""
        self._cloud.engine.sleep(0.02)
        if not (is_down := self.is_dependency_down):
            self._step()
            self._handled.note(self.participant, received.event)
            self._step()
        while True:
            try:
                if is_down:
                    received.nack(DependencyDownError())
                else:
                    received.ack()
                    self._handled.settled.add(_key(self.participant, received.event))
            except AlreadySettledError:
                return
            except EventPlaneClientError:
                self._cloud.engine.sleep(AGAIN_S)
            else:
                return


class ReaderFunction(FunctionModel):
    """A Lambda function that reads for `participant`, with the client library's decorator."""

    def __init__(self, cloud: CloudModel, participant: str, handled: Handled, number: int = 0) -> None:
        self.participant = participant
        self.is_dependency_down = False
        self._handled = handled
        inbox = cloud.inboxes[f"{participant}.inbox"]
        super().__init__(cloud, f"{participant}-{number}", inbox, self._wired, READER)

    def look_soon(self, seconds: float) -> None:
        super().look_soon(seconds + POLLS_S * self._cloud.weather.share())

    def kill(self) -> None:
        """End it at its next call."""
        self._cloud.weather.dead[self.name] = 1

    def _wired(self, program: str) -> Handler:
        cloud, participant = self._cloud, self.participant
        system = Program(cloud.engine, program).system(cloud.weather.draw)
        sqs = cloud.client(program, "sqs")

        @handles_events(
            participant,
            ENVIRONMENT,
            on_doubt=partial(self._handled.is_open, participant),
            on_notice=lambda _: None,
            wiring=lambda: _wired(cloud, program, participant, sqs, system),
            system=system,
        )
        def handle(event: Envelope) -> None:
            cloud.engine.sleep(0.02)
            if self.is_dependency_down:
                raise DependencyDownError
            self._handled.note(participant, event)

        return handle

    def _answer(self, process: Any, event: dict[str, Any], remaining_ms: Callable[[], int]) -> Any:
        try:
            return process(event, _Context(remaining_ms))
        except BatchFailedError:
            return {"batchItemFailures": [{"itemIdentifier": each["messageId"]} for each in event["Records"]]}


@dataclass(frozen=True, slots=True)
class _Context:
    get_remaining_time_in_millis: Callable[[], int]


def _wired(
    cloud: CloudModel, program: str, participant: str, sqs: Any, system: System
) -> tuple[SqsTransport, Callable[[Lease], MessageFilter]]:
    """The queues of `participant`, and what opens its filter."""
    transport = SqsTransport(
        participant,
        sqs,
        inbox=cloud.inboxes[f"{participant}.inbox"],
        outbox=cloud.outboxes[participant],
        visibility_s=PLANE.inbox_visibility_s,
        max_receives=MAX_RECEIVES - 1,
        first_visibility_s=FIRST_VISIBILITY_S,
        system=system,
        receipts=Receipts(participant, ENVIRONMENT, sqs, system),
    )
    claims = cloud.client(program, "dynamodb")
    return transport, lambda lease: DynamoDbFilter(claims, "claims", participant, lease=lease, system=system)
