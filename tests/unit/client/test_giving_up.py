"""How long a reader goes on trying: what fails is given up by time, what kills its reader by count."""

import contextlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from pathlib import Path
from typing import Any, cast

import pytest

from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.envelope import Envelope, parse_event
from eventplane.limits import MAX_RECEIVES
from eventplane.reasons import Reason
from eventplane.retries import LONGEST_S, ROUTINE, SPARE, UNSETTLED, URGENT, URGENT_S, RetrySchedule
from eventplane.sqs_binding import DATA_TYPE, RETRIES
from eventplane.values import timestamp_ms, timestamp_of_ms
from eventplane_client.dynamodb_duplicates import DynamoDbFilter
from eventplane_client.errors import BatchFailedError, LeaseTooLongError, NothingThereError, UnhandleableError
from eventplane_client.functions import MARGIN_S, handles_events
from eventplane_client.inbox import Inbox
from eventplane_client.memory_duplicates import Memory, MemoryFilter
from eventplane_client.ports import Lease, MessageFilter, Mode
from eventplane_client.reader import Doubt
from eventplane_client.sqs import SqsTransport
from eventplane_client.system import SYSTEM, System, Thread
from lab.histories.function import lambda_event
from tests.fakes.aws import FakeAws
from tests.fakes.sqs import FakeSqs
from tests.unit.client.conftest import WORLDS, make_world
from tests.unit.client.worlds import READER, create_filter_table, event, put, reading, redrive
from tests.unit.lambdas.support import LambdaContext

VISIBILITY_S = 60
HOUR_S = 3_600
ORDERED = RetrySchedule(is_urgent=False, is_ordered=True, give_up_after_s=900)


class Died(BaseException):
    """The process ends here: nothing is settled or given back."""


class Process:
    """Whether the process that uses what it wraps is alive; a dead one does nothing any more."""

    is_dead = False

    def around(self, wrapped: Any) -> Any:
        return _Mortal(wrapped, self)


class _Mortal:
    def __init__(self, wrapped: Any, process: Process) -> None:
        self._wrapped = wrapped
        self._process = process

    def __getattr__(self, name: str) -> Any:
        return (lambda *_, **__: {}) if self._process.is_dead else getattr(self._wrapped, name)


@dataclass
class World:
    """A participant's queues in simulated time, and its reader: a program or a function, in some mode.

    What is remembered outlives its process where `is_lasting`, in DynamoDB where `is_table`. A function has
    `timeout_s`; what was received `receives` times is taken away.
    """

    is_function: bool = False
    mode: Mode = Mode.EXACTLY_ONCE
    is_lasting: bool = True
    is_fifo: bool = False
    visibility_s: int = VISIBILITY_S
    timeout_s: int = 30
    receives: int = MAX_RECEIVES
    is_table: bool = False
    on_doubt: Doubt | None = lambda _: True
    handled: dict[str, list[float]] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    fails: Callable[[Envelope], None] = lambda _: None

    def __post_init__(self) -> None:
        self.aws = FakeAws()
        self.start_ms = self.aws.clock.now_ms
        self.memory = Memory()
        suffix, more = (".fifo", {"FifoQueue": "true"}) if self.is_fifo else ("", {})
        if self.is_table:
            create_filter_table(self.aws.dynamodb, "filters")
        create = self.aws.sqs.create_queue
        self.outbox = create(QueueName="outbox")["QueueUrl"]
        self.taken_away = create(QueueName=f"dead{suffix}", Attributes=more)["QueueUrl"]
        more |= {"RedrivePolicy": redrive(self.aws.sqs, self.taken_away, self.receives)}
        more |= {"VisibilityTimeout": str(self.visibility_s)}
        self.inbox = create(QueueName=f"inbox{suffix}", Attributes=more)["QueueUrl"]
        clock = self.aws.clock
        self.system: System = replace(
            SYSTEM,
            monotonic=lambda: clock.now_ms / 1_000,
            time_ns=lambda: clock.now_ms * 1_000_000,
            start_thread=lambda _name, _run: cast("Thread", None),
        )
        self.start()

    @property
    def now_s(self) -> float:
        return (self.aws.clock.now_ms - self.start_ms) / 1_000

    def send(self, sent: Envelope, schedule: RetrySchedule | None = None, group: str | None = None) -> None:
        hints = {RETRIES: {"DataType": DATA_TYPE, "StringValue": schedule.hint}} if schedule else {}
        more = {"MessageGroupId": group, "MessageDeduplicationId": sent.id} if self.is_fifo else {}
        self.aws.sqs.send_message(QueueUrl=self.inbox, MessageBody=sent.json, MessageAttributes=hints, **more)
        self.aws.sqs.queue(self.inbox).messages[-1].group = group

    def start(self) -> None:
        """Begin a process; what the one before had in hand stays so."""
        self._process = Process()
        if self.is_function:
            self._function = handles_events(
                READER,
                "test",
                mode=self.mode,
                on_doubt=self.on_doubt,
                on_notice=lambda _: None,
                wiring=lambda: (self._transport(), self._filter),
                system=self.system,
            )(self._handle)
        else:
            self._inbox = Inbox(
                READER,
                self._transport(),
                self._filter(lambda: float(self.visibility_s)),
                mode=self.mode,
                on_doubt=self.on_doubt,
                on_notice=lambda _: None,
                system=self.system,
            )

    def look(self) -> None:
        """Handle what is visible now."""
        if not self.is_function:
            self._inbox.handle(self._handle, idle_s=0)
            return
        answer = self.aws.sqs.receive_message(
            QueueUrl=self.inbox, MaxNumberOfMessages=10, AttributeNames=["All"], MessageAttributeNames=["All"]
        )
        if not (messages := answer.get("Messages")):
            return
        try:
            context = LambdaContext(remaining_ms=1_000 * self.timeout_s)
            kept = self._function(lambda_event(self.inbox, messages), context)["batchItemFailures"]
        except BatchFailedError:
            kept = [{"itemIdentifier": each["MessageId"]} for each in messages]
        for each in messages:
            if {"itemIdentifier": each["MessageId"]} not in kept:
                self.aws.sqs.delete_message(QueueUrl=self.inbox, ReceiptHandle=each["ReceiptHandle"])

    def run(self, until_s: float) -> None:
        """Let time pass from one message to the next."""
        while True:
            self.look()
            waiting = [each.visible_ms for each in self.aws.sqs.queue(self.inbox).messages]
            at_ms = min(waiting, default=0)
            if not waiting or at_ms > self.start_ms + 1_000 * until_s:
                break
            self.aws.clock.now_ms = max(at_ms, self.aws.clock.now_ms + 500)
        self.aws.clock.now_ms = max(self.aws.clock.now_ms, self.start_ms + round(1_000 * until_s))

    def live(self, until_s: float) -> None:
        """Let time pass; whenever a process dies the next one begins."""
        while True:
            try:
                return self.run(until_s)
            except Died:
                self.start()

    @property
    def letters(self) -> list[dict[str, Any]]:
        found = map(parse_event, self.aws.sqs.bodies(self.outbox))
        return [each.data() for each in found if each.type == DEAD_LETTER_TYPE]

    def _handle(self, received: Envelope) -> None:
        self.asked[received.id] += 1
        try:
            self.fails(received)
        except Died:
            self._process.is_dead = True
            raise
        self.handled.setdefault(received.id, []).append(self.now_s)

    def _transport(self) -> SqsTransport:
        return SqsTransport(
            READER,
            self._process.around(self.aws.sqs),
            inbox=self.inbox,
            outbox=self.outbox,
            visibility_s=self.visibility_s,
            max_receives=self.receives - 1,
            system=self.system,
        )

    def _filter(self, lease: Lease) -> MessageFilter:
        times: Any = {"lease": lease, "clock": self.system.monotonic}
        if self.is_table:
            kept: MessageFilter = DynamoDbFilter(self.aws.dynamodb, "filters", READER, **times)
        else:
            kept = MemoryFilter(self.memory if self.is_lasting else None, **times)
        return self._process.around(kept)


MODES = [Mode.EXACTLY_ONCE, Mode.AT_LEAST_ONCE]


@pytest.mark.parametrize("kind", WORLDS)
@pytest.mark.parametrize("mode", MODES)
def test_deaths_count_since_the_last_failure(kind: str, mode: Mode, tmp_path: Path) -> None:
    world = make_world(kind, tmp_path, MAX_RECEIVES - 1)
    put(world, event())
    for _ in range(2 * UNSETTLED):
        with reading(world, mode=mode) as inbox:
            inbox.receive(0).nack()
        world.hurry()
    deaths = 0
    while not world.letters():
        with contextlib.suppress(NothingThereError):
            got = world.client(world.reader, mode=mode).subscribe(on_doubt=lambda _: True).get(0)
            deaths += got.type != DEAD_LETTER_TYPE  # some worlds lead it back here
        world.crash()
    assert deaths in (UNSETTLED - 1, UNSETTLED)
    assert [each.attributes["deadletterreason"] for each in world.letters()] == [Reason.MAX_RECEIVES]
    world.close()


@pytest.mark.parametrize("skew_s", [-840, 840])
def test_the_age_of_an_event_is_that_of_its_queues_clock(skew_s: int) -> None:
    """This machine's clock is as wrong as SQS accepts a signature."""

    class Answering(FakeSqs):
        def receive_message(self, **request: Any) -> Any:
            date = formatdate(self.clock() / 1_000, usegmt=True)
            return super().receive_message(**request) | {"ResponseMetadata": {"HTTPHeaders": {"date": date}}}

    world = World(fails=exchange_is_down)
    world.system = replace(
        world.system, time_ns=lambda: (world.aws.clock.now_ms + 1_000 * skew_s) * 1_000_000
    )
    world.aws.sqs.__class__ = Answering
    world.send(event("alarm"), RetrySchedule(give_up_after_s=600))
    for at_s in range(0, 600, 60):
        world.start()
        world.run(at_s)
        assert world.letters == []
    world.start()
    world.run(660)
    assert len(world.letters) == 1


@pytest.mark.parametrize("wrong_s", [-(10**9), -840, 840, 10**9])
@pytest.mark.parametrize("time", ["1970-01-01T00:00:12Z", "2056-01-01T00:00:00Z"])
@pytest.mark.parametrize(("waited_s", "is_late"), [(590, False), (601, True)])
def test_lifetimes_count_from_arrival(wrong_s: int, time: str, waited_s: int, is_late: bool) -> None:
    world = World()
    world.system = replace(
        world.system, time_ns=lambda: (world.aws.clock.now_ms + 1_000 * wrong_s) * 1_000_000
    )
    ends = timestamp_of_ms(timestamp_ms(time) + 600_000)
    world.send(event("alarm", time=time, expirytime=ends))
    world.send(event("said", time=time, expirytime=ends, deliverby=timestamp_of_ms(world.start_ms + 600_000)))
    world.aws.clock.now_ms += 1_000 * waited_s
    world.start()
    world.run(waited_s + 5)
    assert world.handled.keys() == (set() if is_late else {"alarm", "said"})
    assert world.letters == []


def exchange_is_down(_: Envelope) -> None:
    raise ConnectionRefusedError("the telephone exchange is down")


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.CRITICAL, "eventplane_client"):
        yield


@pytest.mark.long
@pytest.mark.parametrize("is_function", [False, True])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("is_lasting", [True, False])
def test_an_hours_outage_loses_nothing(is_function: bool, mode: Mode, is_lasting: bool) -> None:
    world = World(is_function, mode, is_lasting, fails=exchange_is_down)
    for at in range(3):
        world.send(event(f"alarm-{at}"), URGENT)
        world.send(event(f"reading-{at}"), ROUTINE)
    for at_s in range(600, HOUR_S + 1, 600):
        world.run(at_s)
        world.start()  # readers are deployed now and then
    most = max(each.receives for each in world.aws.sqs.queue(world.inbox).messages)
    assert most < MAX_RECEIVES - SPARE
    world.fails = lambda _: None
    world.run(HOUR_S + LONGEST_S + 1)
    assert (world.letters, len(world.handled)) == ([], 6)
    for id, times in world.handled.items():
        assert len(times) == 1
        assert times[0] <= HOUR_S + (URGENT_S if "alarm" in id else LONGEST_S)


@pytest.mark.parametrize("is_function", [False, True])
@pytest.mark.parametrize(
    ("mode", "is_lasting", "visibility_s"),
    [*((mode, True, VISIBILITY_S) for mode in MODES), *((mode, False, 10) for mode in MODES)],
)
@pytest.mark.parametrize("fails_s", [0, HOUR_S])
def test_an_event_that_kills_its_reader_does_so_a_few_times(
    is_function: bool, mode: Mode, is_lasting: bool, visibility_s: int, fails_s: int
) -> None:
    """Also after an hour in which it failed in order. Without a lasting state the receives by its age tell.

    They come faster than the schedule: after an hour it takes more of them to prove that.
    """

    def kill(_: Envelope) -> None:
        raise Died

    world = World(is_function, mode, is_lasting, visibility_s=visibility_s, fails=exchange_is_down)
    world.send(event("poison"))
    if fails_s:
        world.run(fails_s)
    world.fails, before = kill, world.asked["poison"]
    for _ in range(100):
        try:
            world.run(world.now_s + 2 * visibility_s)
        except Died:
            world.start()
            world.aws.clock.advance(visibility_s + 1)
    most = UNSETTLED if is_lasting else 80 if fails_s else 25
    assert UNSETTLED - 1 <= world.asked["poison"] - before <= most
    assert [each["reason"] for each in world.letters] == [Reason.MAX_RECEIVES]


@pytest.mark.parametrize("is_function", [False, True])
def test_a_reader_that_goes_without_a_failure_spends_nothing(is_function: bool) -> None:
    """It gives back what it has not handled, ten times in a row."""
    for is_lasting in (True, False):
        world = World(is_function, Mode.AT_LEAST_ONCE, is_lasting)
        world.send(event("alarm"))
        for _ in range(10):
            world.aws.clock.advance(VISIBILITY_S)
            if not is_function:
                world._inbox.receive(0)
                world._inbox.close()
            world.start()
        world.run(world.now_s + VISIBILITY_S)
        assert (world.letters, len(world.handled["alarm"])) == ([], 1)


@pytest.mark.parametrize("is_function", [False, True])
@pytest.mark.parametrize("schedule", [RetrySchedule(give_up_after_s=60), ORDERED, ROUTINE])
def test_it_is_given_up_with_its_last_failure(is_function: bool, schedule: RetrySchedule) -> None:
    world = World(is_function, is_fifo=schedule.is_ordered, fails=exchange_is_down)
    world.aws.clock.advance(100_000)  # what it waited for before it was tried does not count
    began_s = world.now_s
    world.send(event("alarm"), schedule, group="g")
    world.run(began_s + schedule.give_up_after_s - 2)
    assert world.letters == []
    world.run(began_s + schedule.give_up_after_s + 2)
    (letter,) = world.letters
    assert letter["reason"] == "ConnectionRefusedError"
    assert letter["detail"].startswith("the telephone exchange is down (")
    assert f"{__file__}:" in letter["detail"]
    assert letter["detail"].endswith(" in exchange_is_down)")
    assert letter["attempt"] == world.asked["alarm"]


def test_waiting_in_hand_gives_nothing_up() -> None:
    """It was received long before its handler was called."""
    world = World(fails=exchange_is_down)
    world.send(event("alarm"), RetrySchedule(give_up_after_s=60))
    received = world._inbox.receive(0)
    world.aws.clock.advance(1_000)
    received.nack("no")
    world.run(world.now_s + 59)
    assert world.letters == []


def test_what_follows_one_that_fails_has_its_own_time() -> None:
    world = World(is_fifo=True, fails=exchange_is_down)
    for id in ("first", "second"):
        world.send(event(id), ORDERED, group="g")
    world.run(905)
    assert len(world.letters) == 1
    world.run(1_700)
    assert len(world.letters) == 1
    world.fails = lambda _: None
    world.run(1_810)
    assert list(world.handled) == ["second"]


def test_what_can_never_be_handled_ends_at_once() -> None:
    def refuse(_: Envelope) -> None:
        raise UnhandleableError("no_such_room", "7")

    for is_function in (False, True):
        world = World(is_function, fails=refuse)
        world.send(event("alarm"))
        world.look()
        assert [each["reason"] for each in world.letters] == ["no_such_room"]
        assert world.asked["alarm"] == 1


@pytest.mark.parametrize("is_function", [False, True])
@pytest.mark.parametrize(
    ("is_fifo", "schedule", "is_ordered"),
    [
        (False, None, False),
        (False, ORDERED, False),
        (True, None, True),
        (True, ORDERED, True),
        (True, ROUTINE, False),
    ],
)
def test_the_order_is_the_contracts_not_that_of_a_message_group(
    is_function: bool, is_fifo: bool, schedule: RetrySchedule | None, is_ordered: bool
) -> None:
    """In a standard queue groups share its capacity; in a FIFO queue without an order nothing else waits."""

    def first_fails(received: Envelope) -> None:
        if received.id == "first":
            exchange_is_down(received)

    world = World(is_function, is_fifo=is_fifo, fails=first_fails)
    for id in ("first", "second"):
        world.send(event(id), schedule, group="g")
    world.look()
    assert list(world.handled) == ([] if is_ordered else ["second"])


def test_failures_are_logged_less_often(caplog: pytest.LogCaptureFixture) -> None:
    world = World(fails=exchange_is_down)
    world.send(event("alarm", senderdevice="home-1", senderservice="voice-service"), URGENT)
    with caplog.at_level(logging.WARNING, "eventplane_client"):
        world.run(HOUR_S)
    first, *others = (each for each in caplog.records if "failed" in each.message)
    assert first.exc_info
    assert first.exc_info[0] is ConnectionRefusedError
    assert first.message == (
        f"{READER}: attempt 1 at event alarm of /homes/1/voice, sent by home-1/voice-service, failed: "
        "the telephone exchange is down; again in 1 s, given up in 86400 s"
    )
    assert len(others) < 10 < world.asked["alarm"]


@pytest.mark.parametrize("is_function", [False, True])
@pytest.mark.parametrize("mode", list(Mode))
def test_a_failure_has_its_traceback(mode: Mode, is_function: bool, caplog: pytest.LogCaptureFixture) -> None:
    world = World(is_function, mode, fails=exchange_is_down)
    world.send(event("alarm"), URGENT)
    with caplog.at_level(logging.WARNING, "eventplane_client"):
        world.look()
    (failure,) = (each for each in caplog.records if "at event alarm" in each.message)
    assert failure.exc_info
    end = "it is given up" if mode is Mode.AT_MOST_ONCE else "again in 1 s, given up in 86400 s"
    assert failure.message.endswith(f"failed: the telephone exchange is down; {end}")


FEW = 5
"""Receives of the queue of a function that Lambda kills."""


def killed(world: World, fails: int = 0, kills: int = 1) -> list[float]:
    """When attempts at an event began: the first `fails` raise, and Lambda kills the next at the timeout."""
    began: list[float] = []

    def handle(_: Envelope) -> None:
        began.append(world.now_s)
        if len(began) <= fails:
            raise ValueError
        if len(began) <= fails + kills:
            world.aws.clock.advance(world.timeout_s)
            raise Died

    world.fails = handle
    world.send(event("alarm"))
    return began


@pytest.mark.parametrize(
    ("is_table", "timeout_s", "visibility_s"),
    [
        (False, 60, 60),  # the least that Lambda allows
        (False, 10, 60),  # what Lambda advises
        (False, 900, 900),
        (True, 900, 5_400),
    ],
)
@pytest.mark.parametrize("again", [None, True, False])
def test_its_program_decides(is_table: bool, timeout_s: int, visibility_s: int, again: bool | None) -> None:
    """Without a program to ask, an alarm is a dead letter of its reader's inbox."""
    doubts: list[str] = []

    def decide(doubtful: Envelope) -> bool:
        doubts.append(doubtful.id)
        return bool(again)

    world = World(
        is_function=True,
        timeout_s=timeout_s,
        visibility_s=visibility_s,
        receives=FEW,
        is_table=is_table,
        on_doubt=None if again is None else decide,
    )
    began = killed(world)
    world.live(visibility_s * FEW)
    assert world.aws.sqs.bodies(world.inbox) == world.aws.sqs.bodies(world.taken_away) == []
    assert (len(began), doubts) == (1 + bool(again), [] if again is None else ["alarm"])
    assert began[-1] - began[0] > timeout_s or not again
    letters = [(each["reason"], each["channel"]) for each in world.letters]
    assert letters == ([(Reason.IN_DOUBT, f"{READER}.inbox")] if again is None else [])


@pytest.mark.parametrize("on_doubt", [None, lambda _: True, lambda _: False])
@pytest.mark.parametrize("kills", range(1, FEW + 1))
@pytest.mark.parametrize("fails", range(FEW))
def test_no_kill_hides_an_alarm(fails: int, kills: int, on_doubt: Doubt | None) -> None:
    world = World(is_function=True, timeout_s=60, receives=FEW, on_doubt=on_doubt)
    began = killed(world, fails, kills)
    world.live(10 * VISIBILITY_S * FEW)
    assert world.aws.sqs.bodies(world.inbox) == world.aws.sqs.bodies(world.taken_away) == []
    is_handled = len(began) > fails + kills
    is_known_to_be = on_doubt is not None and not on_doubt(event("alarm"))
    assert is_handled or is_known_to_be or len(world.letters) == 1


def test_a_queue_that_gives_out_nothing_after_the_lease_is_refused() -> None:
    for mode in (Mode.EXACTLY_ONCE, Mode.AT_LEAST_ONCE):
        world = World(is_function=True, mode=mode, timeout_s=900, receives=FEW)
        began = killed(world, kills=0)
        if mode is Mode.AT_LEAST_ONCE:
            world.look()
        else:
            with pytest.raises(LeaseTooLongError, match="shorter timeout") as caught:
                world.look()
            assert caught.value.lease_s == 900 + MARGIN_S
        is_free = mode is Mode.AT_LEAST_ONCE
        assert (len(began), len(world.aws.sqs.bodies(world.inbox))) == (is_free, not is_free)


def test_a_function_whose_whole_batch_failed_fails(capsys: pytest.CaptureFixture[str]) -> None:
    def invoke(*failing: str) -> list[str]:
        def fail(received: Envelope) -> None:
            if received.id in failing:
                exchange_is_down(received)

        world = World(is_function=True, fails=fail)
        for id in ("a", "b"):
            world.send(event(id))
        answers: list[str] = []
        function = world._function

        def watched(*arguments: Any) -> Any:
            try:
                return function(*arguments)
            except BatchFailedError as error:
                answers.append(str(error.__cause__))
                raise

        world._function = watched
        world.look()
        assert len(world.aws.sqs.bodies(world.inbox)) == len(failing)
        return answers

    assert invoke("a", "b") == ["the telephone exchange is down"]
    assert invoke("a") == invoke() == []
    metrics = [json.loads(each) for each in capsys.readouterr().out.splitlines()]
    assert [(each["HandlerFailed"], each["service"]) for each in metrics] == [
        ([2.0], f"{READER}.inbox"),
        ([1.0], f"{READER}.inbox"),
    ]
