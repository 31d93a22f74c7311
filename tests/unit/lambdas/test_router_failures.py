"""The router when queues, tables, the archive, time or its own code fail, or its process is killed."""

import base64
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from eventplane.batch import pack
from eventplane.contract import Contract
from eventplane.contract.subscription import IN_FORCE_S, new_subscription, with_subscriptions
from eventplane.dead_letter import letter_id
from eventplane.ledger import SENT_BEFORE
from lambdas.common import system
from lambdas.common.aws import PATIENT, QUICK
from lambdas.common.queue import QueueMessage
from lambdas.router import dispatch, planner
from lambdas.router.active_contract import ActiveContract, BoundedLook, Unseen
from lambdas.router.dispatch import DeliveryMemory
from lambdas.router.engine import RoutingEngine, UnknownSourceError, UnsupportedDestinationError
from lambdas.router.planner import Planner
from lambdas.router.service import LIMITS, RouterService, TimeLimits
from tests.fakes.faults import FailingClient, RefusingSqs
from tests.small_contract import with_changes
from tests.unit.lambdas.support import (
    ALARM,
    DAWN,
    INTERVAL_MS,
    NOW_MS,
    READING,
    Cloud,
    event,
    frame,
    invocation,
    message,
    stamped,
    with_route,
    with_sends,
)

pytestmark = pytest.mark.source("P4")

CENTRE, FAMILY, CARE = "alarm-centre.inbox", "family-app.inbox", "care-analytics.inbox"
CARERS = "carers.inbox"
SENT = message("m1", frame(pack([event("1", ALARM), event("2", READING)])))
ONCE = {CENTRE: 1, FAMILY: 1, CARE: 1}
ROWS = [("1", CENTRE, 1), ("1", FAMILY, 1), ("2", CARE, 1)]


def one(id: str, type: str = READING) -> QueueMessage:
    return message(f"m{id}", frame(event(id, type)))


def unable(client: Any, method: str, *urls: str) -> FailingClient:
    return FailingClient(client, method, targets=urls or None)


def again(router: RouterService, *messages: QueueMessage, attempt: int = 1) -> frozenset[str]:
    """Route messages at an attempt; return the ids of those that are redelivered."""
    return router.process([replace(each, attempt=attempt) for each in messages], invocation())


def recorded(cloud: Cloud) -> list[tuple[Any, ...]]:
    return cloud.ledger_rows("id", "destination", "attempt")


def test_a_refusing_queue_fails_only_its_own(cloud: Cloud) -> None:
    failed = cloud.route(
        one("1", ALARM),
        one("2"),
        message("m3", frame(pack([event("3", ALARM), event("4", "com.example.unknown")]))),
        sqs=unable(cloud.sqs, "send_message_batch", cloud.queues[CENTRE]),
        plane=with_sends(cloud.contract, "activity-service", "com.example.unknown"),
    )
    assert failed == {"m1", "m3"}
    # Deliveries of a failed message are recorded; other decisions are made again.
    assert [row[:2] for row in recorded(cloud)] == [("1", FAMILY), ("2", CARE), ("3", FAMILY)]


def test_a_batch_accepted_in_part_fails_only_the_rest(cloud: Cloud) -> None:
    sqs = RefusingSqs(cloud.sqs, lambda _, body: "InternalError" if '"2"' in body else None)
    assert cloud.route(one("1"), one("2"), one("3"), sqs=sqs) == {"m2"}
    assert [row[0] for row in recorded(cloud)] == ["1", "3"]


def test_no_message_is_planned_without_time_to_finish_it(cloud: Cloud) -> None:
    left = iter([LIMITS.planning_ms])
    assert cloud.route(one("1"), one("2"), remaining_ms=lambda: next(left, LIMITS.planning_ms - 1)) == {"m2"}


def test_urgent_events_go_first(cloud: Cloud) -> None:
    bulk = [one(str(number)) for number in range(5)]
    left = iter([LIMITS.planning_ms] * 6 + [LIMITS.reserve_ms])
    urgent = one("alarm", "org.eventplane.alarm.clinical.v1")
    failed = cloud.route(*bulk, urgent, remaining_ms=lambda: next(left, LIMITS.reserve_ms - 1))
    # The alarm has a second destination, for which there is no time either.
    assert failed == {each.id for each in (*bulk, urgent)}
    assert cloud.outcomes() == [("alarm", CENTRE, "delivered")]


@pytest.mark.parametrize("broken_at", ["once", "halfway"])
def test_a_defect_affects_no_other(cloud: Cloud, monkeypatch: pytest.MonkeyPatch, broken_at: str) -> None:
    plan = Planner.plan

    def broken(self: Planner, queued: QueueMessage, now_ms: int) -> Any:
        if queued.id != "m1" or broken_at == "halfway":
            yield from plan(self, queued, now_ms)
        if queued.id == "m1":
            raise ZeroDivisionError

    monkeypatch.setattr(Planner, "plan", broken)
    assert cloud.route(one("1"), one("2")) == {"m1"}
    assert (cloud.copies(), cloud.outcomes()) == ({CARE: 1}, [("2", CARE, "delivered")])


def test_a_route_that_this_router_cannot_serve_is_refused_at_once(cloud: Cloud) -> None:
    leaving = ("participants/downlink", "routes/answers-to-downlink")
    plane = with_changes(cloud.contract, dict.fromkeys(leaving))
    with pytest.raises(UnsupportedDestinationError, match=r"'down-to-devices' leads to 'device\.inbox'"):
        cloud.engine(plane)
    with pytest.raises(UnknownSourceError, match=r"no channel 'gone\.outbox'"):
        cloud.engine(source="gone.outbox")


@pytest.mark.source("P15")
@pytest.mark.parametrize("whole", [True, False])
def test_a_refusal_for_good_is_a_letter(cloud: Cloud, whole: bool) -> None:
    odd, fine = event("1", subject="odd"), event("2")
    sqs: Any = RefusingSqs(cloud.sqs, lambda _, body: "InvalidParameterValue" if '"odd"' in body else None)
    if whole:  # the batch that the message is in
        sqs = FailingClient(
            cloud.sqs,
            "send_message_batch",
            refused=lambda request: any('"odd"' in each["MessageBody"] for each in request["Entries"]),
            code="AWS.SimpleQueueService.InvalidMessageContents",
        )
    assert cloud.route(message("m1", frame(pack([odd, fine])), attempt=2), sqs=sqs) == frozenset()

    assert cloud.bodies(CARE) == [stamped(fine).json]
    (letter,) = cloud.letters()
    assert base64.b64decode(letter["original_base64"]).decode() == odd.json
    assert {name: letter[name] for name in ("reason", "route", "channel", "attempt")} == {
        "reason": "not_taken",
        "route": "readings-to-care-analytics",
        "channel": "device.outbox",
        "attempt": 2,
    }
    assert cloud.outcomes() == [
        ("1", CARE, "dead_lettered"),
        ("2", CARE, "delivered"),
        (letter_id(*stamped(odd).key), "operations.inbox", "delivered"),
    ]


def test_without_its_dead_letter_the_original_is_redelivered(cloud: Cloud) -> None:
    sqs = RefusingSqs(cloud.sqs, lambda *_: "InvalidParameterValue")
    assert cloud.route(one("1"), sqs=sqs) == {"m1"}
    assert cloud.outcomes() == []


@pytest.mark.source("P17")
def test_later_messages_of_a_group_wait(cloud: Cloud) -> None:
    queued = [
        replace(message(id, event(id, type).json), group=group)
        for id, type, group in (("m1", ALARM, "a"), ("m2", READING, "a"), ("m3", READING, "b"))
    ]
    failed = cloud.route(
        *queued,
        source="family-app.outbox",
        plane=with_sends(cloud.contract, "family-app", ALARM, READING),
        sqs=unable(cloud.sqs, "send_message_batch", cloud.queues[CENTRE]),
    )
    assert failed == {"m1", "m2"}
    assert [row[0] for row in recorded(cloud) if row[1] == CARE] == ["m3"]


class TestFilterTime:
    SENT = message("m1", frame(pack([event("1", subject="in the kitchen"), event("2", ALARM)])))

    @staticmethod
    def subscribed(contract: Contract) -> Contract:
        filters = {
            "cheap": {"exact": {"type": READING}},
            "costly": {"sql": f"type = '{READING}' AND subject LIKE '%kitchen%'"},
        }
        added = [new_subscription("care-analytics", name, each, DAWN) for name, each in filters.items()]
        return with_subscriptions(contract, added)[0]

    def test_costly_subscriptions_are_left_out(
        self, cloud: Cloud, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(planner, "FILTER_SECONDS", 0.0)
        plane = self.subscribed(cloud.contract)
        assert cloud.route(self.SENT, plane=plane) == frozenset()

        # The contract's own routes and the cheap subscription are served.
        lines = cloud.decisions()
        assert {line["route"] for line in lines if line["id"] == "1"} == {
            "readings-to-care-analytics",
            "care-analytics-subscribes-cheap",
        }
        assert cloud.copies()[CENTRE] == 1
        # The ledger names a contract that the archive has, so that the audit expects just this.
        (version,) = {line["contract_version"] for line in lines}
        assert version not in (plane.version, cloud.contract.version)
        assert f"contracts/{version}.json" in cloud.keys("contracts/")
        (said,) = (vars(each) for each in caplog.records if each.levelname == "WARNING")
        assert (said["routes"], said["message_id"]) == (["care-analytics-subscribes-costly"], "m1")

    @pytest.mark.parametrize("is_subscribed", [True, False])
    def test_all_routes_are_served_in_time(
        self, cloud: Cloud, monkeypatch: pytest.MonkeyPatch, is_subscribed: bool
    ) -> None:
        plane = self.subscribed(cloud.contract) if is_subscribed else cloud.contract
        if not is_subscribed:
            monkeypatch.setattr(planner, "FILTER_SECONDS", 0.0)
        cloud.route(self.SENT, plane=plane)
        lines = cloud.decisions()
        served = "care-analytics-subscribes-costly" in {line["route"] for line in lines}
        assert served is is_subscribed
        assert {line["contract_version"] for line in lines} == {plane.version}


@pytest.mark.source("P4", "N1")
class TestCopies:
    """A process makes no copies of the events that it has sent of a redelivered message."""

    def test_without_s3_events_arrive_once_and_are_acknowledged(self, cloud: Cloud) -> None:
        assert cloud.route(SENT, s3=unable(cloud.s3, "put_object")) == frozenset()
        assert (cloud.copies(), recorded(cloud)) == (ONCE, ROWS)

    def test_unrecorded_messages_are_redelivered(self, cloud: Cloud) -> None:
        sqs = unable(cloud.sqs, "send_message_batch")
        router = cloud.router(ledger_sqs=sqs, s3=unable(cloud.s3, "put_object"))
        for attempt in range(1, 6):
            assert again(router, SENT, message("m2", frame(pack([]))), attempt=attempt) == {"m1"}
        sqs.end()
        # Another message's invocation writes it, too.
        assert again(router, one("3")) == frozenset()
        assert again(router, SENT, attempt=6) == frozenset()
        assert cloud.copies() == {**ONCE, CARE: 2}
        # What was sent at the first attempt is recorded as such.
        assert recorded(cloud) == [*ROWS, ("3", CARE, 1)]

    def test_one_inbox_that_refuses_makes_no_copies_in_the_others(self, cloud: Cloud) -> None:
        sqs = unable(cloud.sqs, "send_message_batch", cloud.queues[CARE])
        router = cloud.router(sqs=sqs)
        for attempt in range(1, 6):
            assert again(router, SENT, attempt=attempt) == {"m1"}
        sqs.end()
        assert again(router, SENT, attempt=6) == frozenset()
        assert (cloud.copies(), recorded(cloud)) == (ONCE, [*ROWS[:2], ("2", CARE, 6)])

    def test_a_late_contract_records_it_too(self, cloud: Cloud) -> None:
        published = with_route(cloud.contract, "new", CARERS, ALARM)
        engines = [cloud.engine(published), cloud.engine()]
        sqs = unable(cloud.sqs, "send_message_batch", cloud.queues[CARERS])
        router = cloud.router(engine=lambda: engines.pop(0), sqs=sqs)
        assert again(router, SENT) == {"m1"}
        assert again(router, SENT, attempt=2) == frozenset()
        assert cloud.copies() == ONCE
        rows = cloud.ledger_rows("id", "destination", "attempt", "contract_version", "reason")
        assert rows == sorted(
            (*row[:2], attempt, version, reason)
            for row in ROWS
            for attempt, version, reason in (
                (1, published.version, None),
                (2, cloud.contract.version, SENT_BEFORE),
            )
        )

    def test_a_dead_letter_is_not_repeated_either(self, cloud: Cloud) -> None:
        codes = {cloud.queues[CARE]: "InvalidMessageContents", cloud.queues[CENTRE]: "Throttling"}
        router = cloud.router(sqs=RefusingSqs(cloud.sqs, lambda url, _: codes.get(url)))
        for attempt in range(1, 4):
            assert again(router, SENT, attempt=attempt) == {"m1"}
        assert len(cloud.letters()) == 1

    def test_the_memory_of_deliveries_is_bounded_and_loses_no_record(self, cloud: Cloud) -> None:
        sqs = unable(cloud.sqs, "send_message_batch")
        router = cloud.router(ledger_sqs=sqs, s3=unable(cloud.s3, "put_object"))
        router.dispatch.memory = DeliveryMemory(most=7)
        other = message("m2", frame(pack([event("3", ALARM), event("4", READING)])))
        again(router, SENT)
        again(router, other)
        sqs.end()
        assert again(router, SENT, other, attempt=2) == frozenset()
        # The first message was forgotten, so its events were sent a second time.
        assert cloud.copies() == dict.fromkeys(ONCE, 3)
        assert {row[:2] for row in recorded(cloud)} == {
            *((id, address) for id in "13" for address in (CENTRE, FAMILY)),
            ("2", CARE),
            ("4", CARE),
        }
        assert dispatch.MAX_REMEMBERED >= 5_000

    def test_the_memory_is_bounded(self, cloud: Cloud) -> None:
        memory = DeliveryMemory(most=5)
        steps = list(cloud.engine().planner.plan(SENT, NOW_MS))
        memory.end(steps[:2], (), {"m1"}, is_written=False)
        assert memory.unwritten == [step.record for step in steps[:2]]
        # A dropped best-effort delivery has no event that could be evicted with it.
        dropped = [replace(step, event=None, tried_once=True) for step in steps]
        for _ in range(3):
            memory.end(dropped, (), {"m1"}, is_written=False)
        assert len(memory.unwritten) == 5


class Hanging:
    """A client whose calls wait until it is `released`."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.released = threading.Event()

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            assert self.released.wait(20)
            return getattr(self._client, name)(*arguments, **named)

        return call


@pytest.mark.source("P4", "N1")
class TestTablesThatHang:
    @pytest.fixture
    def tables(self, cloud: Cloud) -> Iterator[Hanging]:
        tables = Hanging(cloud.dynamodb)
        yield tables
        tables.released.set()

    @pytest.fixture
    def in_force(self, cloud: Cloud, tables: Hanging) -> ActiveContract[RoutingEngine]:
        return cloud.in_force(tables)

    def test_the_known_contract(
        self, cloud: Cloud, tables: Hanging, in_force: ActiveContract[RoutingEngine]
    ) -> None:
        cloud.publish(with_route(cloud.contract, "new", "carers.inbox", ALARM))
        look = BoundedLook(in_force, system.threads, system.monotonic, patience_s=0.01)
        router = cloud.router(engine=look.engine)
        assert again(router, SENT) == {"m1"}
        assert cloud.copies() == {CENTRE: 1, FAMILY: 1}
        tables.released.set()
        # The look goes on meanwhile, and its result is used.
        look._look.result(20)  # type: ignore[union-attr]
        assert again(router, SENT, attempt=2) == frozenset()
        assert cloud.copies() == {CARE: 1, "carers.inbox": 1}

    def test_events_wait_once_for_a_look_at_the_tables(self, in_force: ActiveContract[RoutingEngine]) -> None:
        threads = Mock(ended=Mock(return_value=[]))
        now = iter(range(100))
        look = BoundedLook(in_force, threads, lambda: float(next(now)), patience_s=2.0)
        assert all(isinstance(look.engine(), Unseen) for _ in range(3))
        assert [waited_s for (_, waited_s), _ in threads.ended.call_args_list] == [1.0, 0.0, 0.0]

    def test_it_keeps_the_seen(
        self, cloud: Cloud, tables: Hanging, in_force: ActiveContract[RoutingEngine]
    ) -> None:
        tables.released.set()
        look = BoundedLook(in_force, system.threads, system.monotonic, patience_s=20)
        assert isinstance(look.engine(), RoutingEngine)
        tables.released.clear()
        look.patience_s = 0.0
        cloud.clock.now_ms += INTERVAL_MS
        assert isinstance(look.engine(), RoutingEngine)
        # It does so until subscriptions may be in force that it does not know.
        cloud.clock.advance(IN_FORCE_S)
        assert isinstance(look.engine(), Unseen)


@pytest.mark.parametrize(("patience", "payload_s", "timeout_s"), [(QUICK, 1.0, 12), (PATIENT, 5.0, 30)])
def test_a_function_has_time_to_plan_and_to_send(patience: Any, payload_s: float, timeout_s: int) -> None:
    limits = TimeLimits.of(patience, payload_s)
    # A batch at its worst, the ledger's queue, and then the archive or the answer to the queue.
    assert limits.reserve_ms >= 2 * patience.worst_call_ms
    assert limits.planning_ms <= 0.7 * 1_000 * timeout_s
