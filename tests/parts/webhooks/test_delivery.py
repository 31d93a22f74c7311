"""Attempts to deliver: what an answer means, and what all processes that post to an endpoint know of it."""

import heapq
import logging
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from os import urandom
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane.limits import MAX_RECEIVES
from eventplane.reasons import Reason
from eventplane.records import Records, Tables
from eventplane.sinks import GONE_S
from eventplane_aws.tables import DynamoDbTables
from lambdas.common.log import logger
from lambdas.common.queue import Invocation, QueueMessage
from parts.webhooks.delivery import ALONE_MS, KNOWN_MS, Breaker, PostFailure, Rate, judge
from parts.webhooks.endpoint import EndpointResponse, UnreachableError
from parts.webhooks.endpoint_state import (
    BREAK_FIRST_S,
    BREAK_LONGEST_S,
    ENDPOINT,
    LONGEST_ASKED_S,
    endpoint_key,
)
from parts.webhooks.service import WebhookService
from tests.dynamodb import records
from tests.fakes.clock import START_MS, FakeClock
from tests.fakes.faults import FailingClient
from tests.fakes.tables import MemoryTables
from tests.parts.webhooks.conftest import Hook, alarm
from tests.unit.lambdas.support import ENDPOINTS

URL = "https://desk.example/v1"
KEY = endpoint_key("alarm-centre", URL)
DEATH = PostFailure(Reason.ENDPOINT_FAILED, "no answer", None, is_general=True)
OWN = PostFailure(Reason.ENDPOINT_FAILED, "HTTP 500", 500)
LEASE_MS = 10_000


def answered(status: int, **headers: str) -> PostFailure:
    """The failure that an answer means."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    failure = judge(EndpointResponse(status, "Words", named, "because"), START_MS)
    assert failure is not None
    return failure


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        *((status, Reason.ENDPOINT_REFUSED) for status in (400, 405, 413, 415, 422, 499)),
        (301, Reason.ENDPOINT_MOVED),
        (308, Reason.ENDPOINT_MOVED),
    ],
)
def test_a_refusal_or_a_move_is_permanent(status: int, reason: str) -> None:
    failure = answered(status)
    assert (failure.reason, failure.status, failure.is_permanent) == (reason, status, True)
    assert failure.detail.startswith(f"HTTP {status} Words: because")
    moved = answered(status, location="https://new.example/").detail
    assert moved.endswith("(to https://new.example/)") is (reason == Reason.ENDPOINT_MOVED)


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        *((each, Reason.ENDPOINT_FAILED) for each in (408, 425, 429, 500, 501, 502, 503, 504, 599)),
        *((each, Reason.ENDPOINT_FAILED) for each in (302, 303, 307, 101, 999)),
        # What a receiver says while it is deployed.
        *((each, Reason.ENDPOINT_REFUSED) for each in (401, 403, 404, 409, 421, 423)),
    ],
)
def test_2xx_is_a_delivery_and_any_other_status_is_tried_again(status: int, reason: str) -> None:
    assert judge(EndpointResponse(200 + status % 100, "", {}, ""), START_MS) is None
    failure = answered(status)
    assert (failure.reason, failure.is_permanent) == (reason, False)
    assert failure.is_general is (status in (429, 503))
    assert answered(status, retry_after="7").is_general


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120),
        (" 0 ", 0),
        ("99999999999999999999", 999_999_999),
        ("Thu, 01 Jan 2026 00:02:00 GMT", 120),
        ("Thursday, 01-Jan-26 00:02:00 GMT", 120),
        ("Thu, 01 Jan 2026 00:02:00 -0000", None),
        ("Wed, 31 Dec 2025 23:59:00 GMT", 0),
        ("Thu, 99 Jan 2026 00:02:00 GMT", None),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("٣", None),
        ("", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str, seconds: float | None) -> None:
    if value.endswith("-0000"):
        # A time without a place is this machine's; Lambda's is UTC.
        assert answered(503, retry_after=value).retry_after_s is not None
    else:
        assert answered(503, retry_after=value).retry_after_s == seconds


@given(st.text(max_size=40))
def test_any_retry_after_is_accepted(value: str) -> None:
    seconds = answered(429, retry_after=value).retry_after_s
    assert seconds is None or seconds >= 0


def test_a_rate_is_shared_by_the_processes() -> None:
    now_ms = 1_000_000
    pace = Rate(60, 2, lambda: now_ms)
    assert pace.wait_ms() == 0
    pace.take()
    assert pace.wait_ms() == 2_000
    without = Rate(None, 2, lambda: now_ms)
    without.take()
    assert without.wait_ms() == 0
    now_ms += 1_500
    assert pace.wait_ms() == 500
    now_ms += 500
    assert pace.wait_ms() == 0
    # A clock that was set back does not stop deliveries for longer than the interval.
    now_ms -= 3_600_000
    assert pace.wait_ms() == 2_000


@dataclass
class Processes:
    """Processes of a function that share an endpoint, in virtual time."""

    clock: FakeClock = field(default_factory=FakeClock)
    tables: Tables = field(default_factory=MemoryTables)

    def breaker(self) -> Breaker:
        return Breaker(Records(self.tables, ENDPOINTS, ENDPOINT), KEY, self.clock, LEASE_MS)

    def ask(self, breaker: Breaker, result: PostFailure | None = None, takes_s: float = 0.1) -> bool:
        """Begin an invocation with one request, and return whether it was sent."""
        breaker.begin()
        if breaker.enter() is not None:
            return False
        sent_at_ms = self.clock()
        self.clock.advance(takes_s)
        breaker.learn(result, sent_at_ms)
        return True


@pytest.mark.parametrize(
    ("failure", "pause_s"),
    [
        (answered(429, retry_after="30"), 30),
        (answered(503, retry_after=formatdate(START_MS / 1_000 + 60, usegmt=True)), 60),
        (answered(404, retry_after="7"), 7),
        (answered(429, retry_after="0"), 1),
        (answered(429, retry_after="99999999999999999999"), LONGEST_ASKED_S),
        (answered(429, retry_after="Thu, 01 Jan 2099 00:00:00 GMT"), LONGEST_ASKED_S),
        (answered(503), BREAK_FIRST_S),
        (answered(410), GONE_S),
        (answered(410, retry_after="1"), GONE_S),
        (DEATH, BREAK_FIRST_S),
    ],
)
def test_a_pause_holds_for_all_processes_and_then_one_asks(failure: PostFailure, pause_s: int) -> None:
    shared = Processes()
    one, *others = (shared.breaker() for _ in range(4))
    for each in others:
        assert shared.ask(each)
    assert shared.ask(one, failure, takes_s=0)
    shared.clock.advance(pause_s - 0.001)
    # A new process knows it as well.
    assert not any(shared.ask(each) for each in (one, *others, shared.breaker()))
    shared.clock.advance(0.001)
    asker, *others = others
    asker.begin()
    assert asker.enter() is None
    # They wait for the one that asks, and for longer than its lease if the endpoint was gone.
    shared.clock.advance(LEASE_MS / 1_000 - 0.001)
    assert not any(shared.ask(each) for each in others)
    asker.learn(None, shared.clock())
    assert all(shared.ask(each) for each in others)


@pytest.mark.parametrize(("failure", "lease_s"), [(DEATH, LEASE_MS / 1_000), (answered(410), GONE_S)])
def test_a_killed_process_is_followed(failure: PostFailure, lease_s: float) -> None:
    shared = Processes()
    one, other = shared.breaker(), shared.breaker()
    shared.ask(one, failure, takes_s=0)
    shared.clock.advance(GONE_S)
    assert one.enter() is None
    shared.clock.advance(lease_s - 0.001)
    assert not shared.ask(other)
    shared.clock.advance(0.001)
    assert shared.ask(other)


def test_the_breaker_has_growing_pauses() -> None:
    shared = Processes()
    one, other = shared.breaker(), shared.breaker()
    for at in range(10):
        assert shared.ask((one, other)[at % 2], DEATH, takes_s=0)
        told = one.pause()
        assert (told.detail, told.is_general) == ("not tried: no answer", True)
        assert told.retry_after_s == min(BREAK_LONGEST_S, BREAK_FIRST_S * 2**at)
        shared.clock.advance(told.retry_after_s)
    # An answer about one event is an answer.
    assert shared.ask(one, OWN)
    assert shared.ask(other, DEATH, takes_s=0)
    told = one.pause() or DEATH
    assert told.retry_after_s == BREAK_FIRST_S


def test_requests_in_flight_count_once() -> None:
    shared = Processes()
    breakers = [shared.breaker() for _ in range(4)]
    assert not any(each.enter() for each in breakers)
    sent_at_ms = shared.clock()
    shared.clock.advance(1)
    long = answered(429, retry_after="60")
    for each, result in zip(breakers, (DEATH, long, answered(503, retry_after="5"), None), strict=True):
        each.learn(result, sent_at_ms)
    shared.clock.advance(59.999)
    assert not any(shared.ask(each) for each in breakers)
    (state,) = Records(shared.tables, ENDPOINTS, ENDPOINT).all()
    assert state.failures == 1
    assert state.expires > (START_MS + 60_000) // 1_000


def test_an_answer_of_before_does_not_end_a_pause() -> None:
    shared = Processes()
    one, other = shared.breaker(), shared.breaker()
    assert other.enter() is None
    shared.ask(one, answered(429, retry_after="60"))
    other.learn(None, START_MS)
    assert not shared.ask(other)


def test_within_an_invocation_a_pause_is_seen_after_a_second() -> None:
    shared = Processes()
    one, other = shared.breaker(), shared.breaker()
    assert one.enter() is None
    shared.ask(other, answered(429, retry_after="60"), takes_s=0)
    shared.clock.advance(KNOWN_MS / 1_000)
    assert one.enter() is not None


def test_each_endpoint_has_its_record() -> None:
    keys = {endpoint_key(participant, url) for participant in ("a", "b") for url in (URL, URL + "?token=1")}
    assert len(keys) == 4
    assert not [key for key in keys if "desk" in key or "token" in key]


class Counted:
    """`tables`, whose calls are counted by name."""

    def __init__(self, tables: Tables) -> None:
        self.calls: list[str] = []
        self._tables = tables

    def __getattr__(self, name: str) -> Any:
        if name != "first":
            self.calls.append(name)
        return getattr(self._tables, name)


def test_a_healthy_endpoint_costs_one_read() -> None:
    tables = Counted(MemoryTables())
    shared = Processes(tables=tables)  # type: ignore[arg-type]
    breaker = shared.breaker()
    for _ in range(3):
        breaker.begin()
        for result in (None, OWN, None):
            assert breaker.enter() is None
            breaker.learn(result, shared.clock())
    assert tables.calls == ["get"] * 3
    shared.ask(breaker, answered(503, retry_after="60"))
    assert tables.calls[3:] == ["get", "get", "put"]
    assert not any(shared.ask(breaker) for _ in range(10))
    assert len(tables.calls) == 6
    shared.clock.advance(60)
    assert shared.ask(breaker)
    assert tables.calls[6:] == ["get", "put", "delete"]


@pytest.mark.parametrize("method", ["*", "get_item", "put_item"])
@pytest.mark.parametrize("failure", [DEATH, answered(429, retry_after="20"), answered(410)])
def test_without_the_table_a_process_goes_by_what_it_knows(
    fake_aws: Any, caplog: pytest.LogCaptureFixture, method: str, failure: PostFailure
) -> None:
    records(fake_aws.dynamodb, ENDPOINTS, ENDPOINT)
    client = FailingClient(fake_aws.dynamodb, method)
    shared = Processes(tables=DynamoDbTables(client, urandom))
    one, other = shared.breaker(), shared.breaker()
    assert shared.ask(one, failure, takes_s=0)
    assert not shared.ask(one)
    # The other one cannot know it, and is not stopped.
    assert shared.ask(other)
    (said,) = {each.message for each in caplog.records}
    assert "out of reach" in said
    # The table is left alone for a while: a call that times out takes seconds.
    asked = len(client.asked)
    assert shared.ask(other)
    assert len(client.asked) == asked or method == "put_item"
    client.end()
    shared.clock.advance(ALONE_MS / 1_000 + GONE_S)
    assert shared.ask(one, failure, takes_s=0)
    assert not shared.ask(other)


@pytest.mark.parametrize("failure", [answered(429, retry_after="900"), answered(410)])
def test_a_long_pause_is_told_at_once(fake_aws: Any, failure: PostFailure) -> None:
    records(fake_aws.dynamodb, ENDPOINTS, ENDPOINT)
    client = FailingClient(fake_aws.dynamodb)
    shared = Processes(tables=DynamoDbTables(client, urandom))
    one = shared.breaker()
    assert one.enter() is None
    client.end()
    one.learn(failure, shared.clock())
    assert not shared.ask(shared.breaker())


@pytest.mark.parametrize("failure", [answered(429, retry_after="900"), answered(410)])
def test_what_a_process_saw_alone_is_told(fake_aws: Any, failure: PostFailure) -> None:
    records(fake_aws.dynamodb, ENDPOINTS, ENDPOINT)
    client = FailingClient(fake_aws.dynamodb, "*")
    shared = Processes(tables=DynamoDbTables(client, urandom))
    one, other = shared.breaker(), shared.breaker()
    assert shared.ask(one, failure)
    client.end()
    shared.clock.advance(ALONE_MS / 1_000)
    assert not shared.ask(one)
    assert not shared.ask(other)
    shared.clock.advance(GONE_S)
    assert shared.ask(other)
    assert shared.ask(one)


@pytest.mark.lost_answers
def test_the_process_that_asks_goes_by_its_own_writes(fake_aws: Any) -> None:
    records(fake_aws.dynamodb, ENDPOINTS, ENDPOINT)
    shared = Processes(tables=DynamoDbTables(fake_aws.dynamodb, urandom))
    shared.ask(shared.breaker(), DEATH, takes_s=0)
    shared.clock.advance(BREAK_FIRST_S)
    assert shared.ask(shared.breaker())
    assert all(shared.ask(shared.breaker()) for _ in range(2))


def test_a_record_that_cannot_be_read_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    shared = Processes()
    key = ENDPOINT.key_of(KEY)
    shared.tables.put(ENDPOINTS, key, {**key, "paused_until_ms": {"S": "soon"}}, None)
    assert shared.ask(shared.breaker())
    assert "correct the item or delete it" in vars(caplog.records[-1])["error"]


def test_a_pause_ends_no_event_and_the_request_after_its_age_does(hook: Hook) -> None:
    shared = Processes(hook.cloud.clock)
    service = with_breaker(hook.service(URL), shared)
    shared.ask(shared.breaker(), answered(429, retry_after="900"))
    service.delivery.endpoint.send = lambda *_: EndpointResponse(429, "Busy", {"retry-after": "9"}, "")  # type: ignore[method-assign]
    late = [alarm("1", attempt=9, age_s=301), alarm("2", attempt=9, age_s=301)]
    hook.cloud.clock.advance(300)
    waits = service.process(late, Invocation("i1", lambda: 60_000))
    assert all(each >= LONGEST_ASKED_S - 300 for each in waits.values())
    assert len(waits) == 2
    hook.cloud.clock.advance(LONGEST_ASKED_S - 300)
    assert service.process(late, Invocation("i2", lambda: 60_000)) == {}
    assert [each["reason"] for each in hook.letters()] == ["endpoint_failed"] * 2


def test_too_old_in_a_pause_is_a_letter(hook: Hook) -> None:
    shared = Processes(hook.cloud.clock)
    service = with_breaker(hook.service(URL), shared)
    shared.ask(shared.breaker(), answered(410))
    old = alarm("1", age_s=service.letters.channel.retention_s - GONE_S)
    assert service.process([old], Invocation("i1", lambda: 60_000)) == {}
    assert [each["reason"] for each in hook.letters()] == ["endpoint_gone"]


def with_breaker(service: WebhookService, shared: Processes) -> WebhookService:
    return replace(service, delivery=replace(service.delivery, breaker=shared.breaker()))


# Thousands of alarms, in virtual time.

ALARMS = 2_000
DAY_S = 86_400


@dataclass
class Receiver:
    """An endpoint in bad weather. While a request is in flight `meanwhile` happens.

    `early` are requests inside a Retry-After, `gone_at` the times of those that met 410.
    """

    clock: FakeClock
    dice: random.Random
    meanwhile: Callable[[], None] = lambda: None
    taken: list[str] = field(default_factory=list)
    statuses: set[int] = field(default_factory=set)
    early: int = 0
    gone_at: list[int] = field(default_factory=list)
    begun_too_early: int = 0
    _not_before_ms: int = 0
    _gone_until_ms: int = 0

    def send(self, _method: str, headers: Any, _body: bytes) -> EndpointResponse:
        now_ms = self.clock()
        self.early += now_ms < self._not_before_ms
        self.begun_too_early += now_ms < self._gone_until_ms
        # An exchange lasts longer than a process may rely on what it read before.
        self.clock.advance(KNOWN_MS / 1_000 + self.dice.random() / 2)
        self.meanwhile()
        return self._answer(headers)

    def _answer(self, headers: Any) -> EndpointResponse:
        now_ms = self.clock()
        at_s = (now_ms - START_MS) // 1_000
        chance = self.dice.random()
        if at_s % 1_800 < 90:
            raise UnreachableError("ConnectionRefusedError")  # it restarts
        if 7_200 <= at_s < 14_400:
            self.gone_at.append(now_ms)
            self._gone_until_ms = now_ms + 1_000 * GONE_S
            return self._said(410)
        if at_s % 1_800 < 300 and chance < 0.3:
            return self._said(self.dice.choice((401, 403, 404, 409, 421, 423)))  # some of it is deployed
        if chance < 0.02:
            wait_s = self.dice.choice((1, 5, 40, 120))
            value = str(wait_s)
            if self.dice.random() < 0.5:
                until_s = now_ms // 1_000 + wait_s
                value, wait_s = formatdate(until_s, usegmt=True), until_s - now_ms / 1_000
            return self._said(self.dice.choice((429, 503)), wait_s, value)
        if chance < 0.0202:
            return self._said(429, LONGEST_ASKED_S, "86400")
        if chance < 0.03:
            return self._said(503)
        self.taken.append(headers["webhook-id"])
        return self._said(204)

    def _said(self, status: int, wait_s: float = 0, retry_after: str = "") -> EndpointResponse:
        self.statuses.add(status)
        self._not_before_ms = max(self._not_before_ms, self.clock() + int(1_000 * wait_s))
        return EndpointResponse(status, "Words", {"retry-after": retry_after} if retry_after else {}, "")


@pytest.fixture
def quiet() -> Iterator[None]:
    level = logger.log_level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


@pytest.mark.long
@pytest.mark.usefixtures("quiet")
def test_alarms_outlive_bad_weather(hook: Hook) -> None:
    clock, dice, alarms = hook.cloud.clock, random.Random(38), ALARMS
    receiver = Receiver(clock, dice)
    shared = Processes(clock)
    made = hook.service(URL, give_up_after_s=DAY_S)

    def process() -> WebhookService:
        service = with_breaker(replace(made, uniform=dice.uniform), shared)
        return replace(service, delivery=replace(service.delivery, endpoint=receiver))  # type: ignore[arg-type]

    idle = [process() for _ in range(4)]
    arrivals = (
        replace(alarm(str(at)), sent_at_ms=START_MS + 10_000 * dice.randrange(2_500)) for at in range(alarms)
    )
    queue: list[tuple[int, str, QueueMessage]] = [(each.sent_at_ms, each.id, each) for each in arrivals]
    heapq.heapify(queue)
    most_receives = invocations = 0

    def invoke() -> None:
        nonlocal most_receives, invocations
        batch: list[QueueMessage] = []
        while queue and queue[0][0] <= clock() and len(batch) < 10:
            batch.append(heapq.heappop(queue)[2])
        if not batch or not idle:
            return
        service = idle.pop(dice.randrange(len(idle)))
        invocations += 1
        began_ms = clock()
        waits = service.process(batch, Invocation(f"i{invocations}", lambda: 60_000 - (clock() - began_ms)))
        idle.append(service)
        for each in batch:
            most_receives = max(most_receives, each.attempt)
            if each.id in waits:
                again = replace(each, attempt=each.attempt + 1)
                heapq.heappush(queue, (clock() + 1_000 * waits[each.id], each.id, again))

    def meanwhile() -> None:
        if idle and dice.random() < 0.3:
            invoke()

    receiver.meanwhile = meanwhile
    while queue:
        clock.now_ms = max(clock(), queue[0][0])
        invoke()

    assert len(receiver.taken) == len(set(receiver.taken)) == alarms
    assert [outcome for _, outcome, *_ in hook.outcomes()] == ["delivered"] * alarms
    assert hook.letters() == hook.cloud.bodies("last-resort") == []
    assert (receiver.early, receiver.begun_too_early) == (0, 0)
    assert most_receives < MAX_RECEIVES / 4
    # The weather was as bad as it should be.
    assert receiver.statuses >= {204, 404, 410, 429, 503}
    assert len(receiver.gone_at) >= 2
