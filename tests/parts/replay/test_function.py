"""The replay of events that an audit reports lost, and of a past window, from the tap's files to inboxes."""

import gzip
from collections.abc import Callable, Iterable
from os import urandom
from typing import Any

import pytest

from eventplane.contract import Contract
from eventplane.dead_letter import letter_id
from eventplane.envelope import Envelope, parse_event
from eventplane.ledger import TapRecord, to_line
from eventplane.limits import MAX_EVENT_BYTES
from eventplane.sqs_binding import REPLAYED_HINT, hint_of
from lambdas.common import system
from lambdas.common.archive import Archiver
from lambdas.common.queue import Invocation
from lambdas.common.sqs import SqsSender
from lambdas.router.active_contract import Unseen
from lambdas.router.dispatch import Dispatch
from lambdas.router.engine import RoutingEngine
from parts.replay import handler as module
from parts.replay import tap_files
from parts.replay.handler import ReplayService
from parts.replay.order import Order, Owed, OwedOrder, WindowOrder, order_text
from parts.replay.tap_files import Orders, Planners, TapFiles
from tests.fakes.faults import FailingClient
from tests.small_contract import with_changes
from tests.unit.lambdas.support import (
    ALARM,
    BUCKET,
    NOW_MS,
    READING,
    Cloud,
    event,
    message,
    stamped,
    with_route,
)

FILE = "tap/date=2025-12-31/hour=23/a.json.gz"
DAY_MS = 86_400_000
ACCEPTED_MS = NOW_MS - DAY_MS
CARE, INBOX = "readings-to-care-analytics", "care-analytics.inbox"
WEEK = {"time": "2025-01-01T00:00:00Z", "expirytime": "2025-01-08T00:00:00Z"}
MARK = "2026-01-01T00:00:00.000Z"

Replay = Callable[..., frozenset[str]]


@pytest.fixture
def replay(cloud: Cloud) -> Replay:
    """Carries out orders (or bodies), each as message `m1`, `m2` ..."""
    Archiver(cloud.s3, BUCKET, urandom).file_contract(cloud.contract.version, cloud.contract.canonical)

    def replay(
        *orders: Order | str,
        plane: Contract | None = None,
        sqs: Any = None,
        ledger_sqs: Any = None,
        s3: Any = None,
        remaining_ms: Callable[[], int] = lambda: 900_000,
        is_seen: bool = True,
        attempt: int = 1,
        candidate: Contract | None = None,
    ) -> frozenset[str]:
        engine = cloud.engine(plane)
        if candidate:
            cloud.offer(candidate)
            found = cloud.in_force().engine()
            assert isinstance(found, RoutingEngine)
            engine = found
        s3 = s3 or cloud.s3
        service = ReplayService(
            engine=lambda: engine if is_seen else Unseen(engine),
            orders=Orders(TapFiles(s3, BUCKET), Planners(s3, BUCKET, "device.outbox", system.cpu_time)),
            dispatch=Dispatch(SqsSender(sqs or cloud.sqs), cloud.queues, system.threads),
            inboxes=cloud.queues,
            ledger=cloud.ledger_of(sqs=ledger_sqs, s3=s3),
            clock=cloud.clock,
        )
        bodies = [each if isinstance(each, str) else order_text(each) for each in orders]
        messages = [message(f"m{number}", body, attempt) for number, body in enumerate(bodies, start=1)]
        return service.process(messages, Invocation("invocation-1", remaining_ms))

    return replay


def tap_line(
    event: Envelope, index: int = 0, client: str = "home-1", at_ms: int = ACCEPTED_MS, ends_ms: Any = None
) -> str:
    record = TapRecord(at_ms, at_ms, client, "t", f"m-{client}", index, event.json, None, None, "", ends_ms)
    return to_line(record)


def tapped(cloud: Cloud, *events: Envelope, accepted_at_ms: int = ACCEPTED_MS, ends_ms: Any = None) -> None:
    """The tap's file has `events`, and a line that is no record."""
    lines = [tap_line(each, at, at_ms=accepted_at_ms, ends_ms=ends_ms) for at, each in enumerate(events)]
    write(cloud, [*lines, "no record"])


def write(cloud: Cloud, lines: Iterable[str]) -> None:
    body = gzip.compress("".join(f"{line}\n" for line in lines).encode())
    cloud.s3.put_object(Bucket=BUCKET, Key=FILE, Body=body)


def owed(cloud: Cloud, *events: Envelope, at_ms: int = ACCEPTED_MS, **members: str) -> OwedOrder:
    """An order for events of one route, and of one contract."""
    named = {"route": CARE, "version": cloud.contract.version, **members}
    return OwedOrder(FILE, tuple(Owed(*stamped(each).key, *named.values(), at_ms) for each in events))


def reasons(cloud: Cloud) -> list[str]:
    return [each["reason"] for each in cloud.letters()]


def test_a_lost_event_is_replayed_marked_and_recorded(cloud: Cloud, replay: Replay) -> None:
    lost, kept = event("1", ALARM), event("2")
    tapped(cloud, kept, lost, lost)
    order = owed(cloud, lost, route="daily-life-to-family")
    # Until the contract in force is seen every order waits.
    assert replay(order, "no order", is_seen=False) == {"m1", "m2"}
    assert cloud.decisions() == []
    assert replay(order) == frozenset()

    (received,) = cloud.received("family-app.inbox")
    assert received["Body"] == f'{{"replayedtime":"{MARK}",' + stamped(lost).json[1:]
    hints = {name: each["StringValue"] for name, each in received["MessageAttributes"].items()}
    assert (hints["ce_replayedtime"], hints["route"]) == (MARK, "daily-life-to-family")
    assert cloud.copies() == {}
    (line,) = cloud.decisions()
    expected = {
        "decided_at_ms": NOW_MS,
        "entered_at_ms": ACCEPTED_MS,
        "entered_by": "device.outbox",
        "contract_version": cloud.contract.version,
        "source": lost.source,
        "id": "1",
        "client_id": "home-1",
        "priority": "urgent",
        "route": "daily-life-to-family",
        "destination": "family-app.inbox",
        "outcome": "delivered",
        "reason": "replay",
    }
    assert expected.items() <= line.items()


def test_an_event_without_room_for_the_mark_has_it_as_a_hint(cloud: Cloud, replay: Replay) -> None:
    small = event("1", ALARM)
    room = MAX_EVENT_BYTES - stamped(small).bytes
    lost = parse_event("{" + " " * room + small.json[1:])
    tapped(cloud, lost)
    assert replay(owed(cloud, lost, route="daily-life-to-family")) == frozenset()
    (received,) = cloud.received("family-app.inbox")
    assert (received["Body"], hint_of(received, REPLAYED_HINT)) == (stamped(lost).json, MARK)


def test_of_two_senders_of_one_id_only_the_lost_event_is_replayed(cloud: Cloud, replay: Replay) -> None:
    true, forged = event("1"), event("1", subject="forged")
    senders = (("home-2", forged), ("home-1", true), ("home-2", forged))
    write(cloud, (tap_line(each, client=client) for client, each in senders))
    assert replay(owed(cloud, true)) == frozenset()

    (body,) = cloud.bodies(INBOX)
    replayed = parse_event(body)
    assert (replayed.key, "subject" in replayed.attributes) == (stamped(true).key, False)
    nobodys = Owed("home-3/", *true.claim, CARE, cloud.contract.version, ACCEPTED_MS)
    assert replay(OwedOrder(FILE, (nobodys,))) == frozenset()
    assert reasons(cloud) == ["not_in_tap"]


@pytest.mark.source("P4", "C1")
def test_a_best_effort_event_is_replayed_at_least_once(cloud: Cloud, replay: Replay) -> None:
    lost = event("1", deliveryguarantee="best_effort")
    tapped(cloud, lost)
    assert replay(owed(cloud, lost), sqs=FailingClient(cloud.sqs, "send_message_batch")) == {"m1"}
    assert cloud.decisions() == []
    assert replay(owed(cloud, lost), attempt=2) == frozenset()
    assert cloud.copies() == {INBOX: 1}
    assert cloud.ledger_rows("outcome", "reason", "attempt") == [("delivered", "replay", 2)]


@pytest.mark.parametrize(
    ("late", "age_days", "ends_ms", "reason"),
    [
        (event("1", expirytime="2025-12-31T12:00:00Z"), 1, None, "expirytime"),
        (event("1", **WEEK), 8, "soon", "expirytime"),
        (event("1", **WEEK), 1, NOW_MS, "expirytime"),  # it was on its device for six days
        (event("1"), 8, None, "channel_expiry"),  # counts from when it was accepted
    ],
)
@pytest.mark.lost_answers
def test_an_event_that_expired_meanwhile_is_recorded_and_not_sent(
    cloud: Cloud, replay: Replay, late: Envelope, age_days: int, ends_ms: object, reason: str
) -> None:
    accepted_ms = NOW_MS - age_days * DAY_MS
    tapped(cloud, late, accepted_at_ms=accepted_ms, ends_ms=ends_ms)
    assert replay(owed(cloud, late, at_ms=accepted_ms)) == frozenset()
    assert cloud.ledger_rows("outcome", "reason", "entered_at_ms") == [("expired", reason, accepted_ms)]
    assert cloud.copies() == {}


@pytest.mark.parametrize("is_file_there", [True, False])
@pytest.mark.lost_answers
def test_an_event_without_tap_is_a_letter(cloud: Cloud, replay: Replay, is_file_there: bool) -> None:
    if is_file_there:
        tapped(cloud, event("2"))
    assert replay(owed(cloud, event("1"))) == frozenset()
    (letter,) = cloud.letters()
    assert (letter["reason"], letter["channel"], FILE in letter["detail"]) == ("not_in_tap", "replay", True)
    # The event itself has no record: of an event that the tap does not have, the audit would call it forged.
    assert [line["type"] for line in cloud.decisions()] == ["org.eventplane.deadletter.v1"]


def test_a_removed_destination_is_a_dead_letter_of_the_event(cloud: Cloud, replay: Replay) -> None:
    lost = event("1")
    tapped(cloud, lost)
    del cloud.queues[INBOX]
    changes = {"participants/care-analytics/retired": True, f"routes/{CARE}": None}
    assert replay(owed(cloud, lost), plane=with_changes(cloud.contract, changes)) == frozenset()
    (body,) = cloud.bodies("operations.inbox")
    letter = parse_event(body)
    id = letter_id(*stamped(lost).key)
    assert (letter.id, letter.attributes["deadletterreason"]) == (id, "destination_gone")
    dead, told = sorted(cloud.decisions(), key=lambda line: line["outcome"])
    assert (dead["outcome"], dead["reason"], dead["route"]) == ("dead_lettered", "destination_gone", CARE)
    assert dead["contract_version"] == cloud.contract.version
    assert (told["outcome"], told["id"]) == ("delivered", id)


@pytest.mark.parametrize("wrong", [{"version": "0123456789abcdef"}, {"route": "no-route"}, None])
def test_a_bad_order_affects_no_other(cloud: Cloud, replay: Replay, wrong: dict[str, str] | None) -> None:
    lost = event("1")
    tapped(cloud, lost)
    bad = "by mistake" if wrong is None else owed(cloud, lost, **wrong)
    assert replay(bad, owed(cloud, lost)) == frozenset()
    assert reasons(cloud) == ["bad_order"]
    assert cloud.copies() == {INBOX: 1}


@pytest.mark.parametrize("named", [{"participant": "newcomer"}, {"route": "to-newcomer"}])
def test_a_window_is_its_participants(cloud: Cloud, replay: Replay, named: dict[str, str]) -> None:
    plane = cloud.contract
    for name in ("newcomer", "other"):
        route = {"filter": {"exact": {"type": READING}}, "to": f"{name}.inbox"}
        service = {"kind": "cloud_service", "description": "Is new."}
        plane = with_changes(plane, {f"participants/{name}": service, f"routes/to-{name}": route})
    cloud.queues |= {f"{name}.inbox": cloud.queue(name) for name in ("newcomer", "other")}
    tapped(cloud, event("1"), event("2", ALARM), event("3"), event("3"))
    assert replay(WindowOrder(FILE, ACCEPTED_MS, ACCEPTED_MS + 1, **named), plane=plane) == frozenset()

    received = [parse_event(body) for body in cloud.bodies("newcomer.inbox")]
    assert sorted((each.id, each.attributes["replayedtime"]) for each in received) == [
        ("1", MARK),
        ("3", MARK),
    ]
    assert cloud.copies() == {}
    rows = set(cloud.ledger_rows("route", "reason", "entered_at_ms"))
    assert rows == {("to-newcomer", "replay", ACCEPTED_MS)}
    # It is filed before the records that name it.
    assert f"contracts/{plane.version}.json" in cloud.keys("contracts/")


@pytest.mark.parametrize(
    ("from_ms", "to_ms", "named", "expected"),
    [
        (ACCEPTED_MS + 1, NOW_MS, {"participant": "care-analytics"}, []),
        (0, ACCEPTED_MS, {"participant": "care-analytics"}, []),
        (0, NOW_MS, {"participant": "nobody"}, ["destination_gone"]),
        (0, NOW_MS, {"route": "no-route"}, ["destination_gone"]),
    ],
)
def test_a_window_sends_only_its_events_and_needs_a_destination(
    cloud: Cloud, replay: Replay, from_ms: int, to_ms: int, named: dict[str, str], expected: list[str]
) -> None:
    tapped(cloud, event("1"))
    assert replay(WindowOrder(FILE, from_ms, to_ms, **named)) == frozenset()
    assert (reasons(cloud), cloud.copies()) == (expected, {})


def test_a_copy_within_a_window_is_sent(cloud: Cloud, replay: Replay) -> None:
    """The simulator: the file has the event twice, and the first time it was accepted before the window."""
    write(cloud, [tap_line(event("1"), at, at_ms=ACCEPTED_MS + at) for at in range(3)])
    replay(WindowOrder(FILE, ACCEPTED_MS + 1, NOW_MS, participant="care-analytics"))
    assert cloud.copies() == {INBOX: 1}


def test_a_window_is_judged_by_the_version_of_each_event(cloud: Cloud, replay: Replay) -> None:
    candidate = with_changes(with_route(cloud.contract, "renamed", INBOX, READING), {f"routes/{CARE}": None})
    tapped(cloud, event("1", devicecontract=candidate.version), event("2"))
    order = WindowOrder(FILE, 0, NOW_MS, participant="care-analytics")
    assert replay(order, candidate=candidate) == frozenset()
    assert cloud.ledger_rows("id", "route") == [("1", "renamed"), ("2", CARE)]


def test_a_window_skips_refused_events(cloud: Cloud, replay: Replay) -> None:
    plane = with_changes(cloud.contract, {f"event_types/{READING}/schema_check": "strict"})
    tapped(cloud, event("1", dataschema="https://schemas.example.org/none"))
    assert replay(WindowOrder(FILE, 0, NOW_MS, participant="care-analytics"), plane=plane) == frozenset()
    assert (cloud.decisions(), cloud.copies()) == ([], {})


def test_an_order_is_redelivered_when_queue_ledger_or_time_fails(cloud: Cloud, replay: Replay) -> None:
    lost = event("1")
    tapped(cloud, lost)
    order = owed(cloud, lost)
    refusing = FailingClient(cloud.sqs, "send_message_batch")
    assert replay(order, sqs=refusing) == {"m1"}
    assert cloud.decisions() == []
    assert replay(order, ledger_sqs=refusing, s3=FailingClient(cloud.s3, "put_object")) == {"m1"}
    assert cloud.copies() == {INBOX: 1}
    assert replay(order, remaining_ms=lambda: 5_000) == {"m1"}
    assert cloud.copies() == {}


def test_an_order_for_a_damaged_file_is_redelivered_alone(cloud: Cloud, replay: Replay) -> None:
    tapped(cloud, event("1"))
    cloud.s3.put_object(Bucket=BUCKET, Key=FILE, Body=cloud.read(FILE)[:-9])
    assert replay(owed(cloud, event("1")), "by mistake") == {"m1"}
    assert reasons(cloud) == ["bad_order"]


def test_a_large_file_in_portions(cloud: Cloud, replay: Replay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PORTION", 3)
    tapped(cloud, *(event(str(number)) for number in range(8)))
    assert replay(WindowOrder(FILE, 0, NOW_MS, participant="care-analytics")) == frozenset()
    assert len(cloud.sqs.bodies(cloud.ledger)) == 3
    assert (len(cloud.decisions()), cloud.copies()) == (8, {INBOX: 8})


def test_an_event_at_the_hop_limit_is_not_replayed(cloud: Cloud, replay: Replay) -> None:
    tired, young = event("1", routerhops=8), event("2", routerhops=1)
    tapped(cloud, tired, young)
    assert replay(owed(cloud, tired, young)) == frozenset()
    (body,) = cloud.bodies(INBOX)
    assert parse_event(body).attributes["routerhops"] == 2
    assert reasons(cloud) == ["hop_limit"]


def test_few_contracts_are_kept(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tap_files, "MAX_KEPT", 2)
    contracts = [with_route(cloud.contract, name) for name in "abc"]
    for each in contracts:
        Archiver(cloud.s3, BUCKET, urandom).file_contract(each.version, each.canonical)
    s3 = FailingClient(cloud.s3, targets=())
    made = Planners(s3, BUCKET, "device.outbox", system.cpu_time)
    first, _, last = (made.of(each.version) for each in contracts)
    assert (made.of(contracts[2].version) is last, len(s3.asked)) == (True, 3)
    assert (made.of(contracts[0].version) is first, len(s3.asked)) == (False, 4)
