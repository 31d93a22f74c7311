"""The replay: what an audit misses, and what somebody new asks for, from the tap's files to the inboxes."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from eventplane.contract import Contract, compile_contract
from eventplane.dead_letter import letter_id
from eventplane.envelope import Envelope, parse_event
from eventplane.ledger import TapRecord, to_line
from eventplane.replay import Order, Owed, OwedOrder, WindowOrder, order_text
from lambdas.common.archive import Archive
from lambdas.common.queue import Invocation
from lambdas.common.sqs import SqsSender
from lambdas.replay import handler as module
from lambdas.replay.handler import ReplayService
from lambdas.replay.orders import Orders, Planners, TapFiles
from lambdas.router.active_contract import Unseen
from lambdas.router.dispatch import Dispatch
from lambdas.router.engine import build_engine
from tests.unit.lambdas.support import (
    ALARM,
    BUCKET,
    NOW_MS,
    READING,
    Cloud,
    Unwilling,
    event,
    ledger_of,
    message,
    stamped,
)

FILE = "tap/date=2025-12-31/hour=23/a.json.gz"
DAY_MS = 86_400_000
ACCEPTED_MS = NOW_MS - DAY_MS
CARE = "readings-to-care-analytics"
MARK = "2026-01-01T00:00:00.000Z"

Replay = Callable[..., frozenset[str]]


@pytest.fixture
def replay(contract: Contract, cloud: Cloud) -> Replay:
    """Carries out orders (or bodies), each as message `m1`, `m2` ..."""
    Archive(cloud.s3, BUCKET).file_contract(contract.version, contract.canonical)

    def replay(
        *orders: Order | str,
        plane: Contract | None = None,
        queues: dict[str, str] | None = None,
        sqs: Any = None,
        ledger_sqs: Any = None,
        s3: Any = None,
        remaining_ms: Callable[[], int] = lambda: 900_000,
        is_seen: bool = True,
        attempt: int = 1,
    ) -> frozenset[str]:
        inboxes = cloud.queues if queues is None else queues
        engine = build_engine(plane or contract, "device.outbox", inboxes)
        s3 = s3 or cloud.s3
        service = ReplayService(
            engine=lambda: engine if is_seen else Unseen(engine),
            orders=Orders(TapFiles(s3, BUCKET), Planners(s3, BUCKET, "device.outbox")),
            dispatch=Dispatch(SqsSender(sqs or cloud.sqs), inboxes),
            inboxes=inboxes,
            ledger=ledger_of(cloud, sqs=ledger_sqs, s3=s3),
            clock=lambda: NOW_MS,
        )
        bodies = [each if isinstance(each, str) else order_text(each) for each in orders]
        messages = [message(f"m{number}", body, attempt) for number, body in enumerate(bodies, start=1)]
        return service.process(messages, Invocation("invocation-1", remaining_ms))

    return replay


def tapped(cloud: Cloud, *events: Envelope, accepted_at_ms: int = ACCEPTED_MS) -> None:
    """The tap's file has `events`, and a line that is no record."""
    records = (
        TapRecord(
            accepted_at_ms, accepted_at_ms, "home-1", "devices/home-1/outbox", "m", index, text, None, None
        )
        for index, text in enumerate(each.json for each in events)
    )
    write(cloud, [*map(to_line, records), "no record"])


def write(cloud: Cloud, lines: Iterable[str]) -> None:
    body = gzip.compress("".join(f"{line}\n" for line in lines).encode())
    cloud.s3.put_object(Bucket=BUCKET, Key=FILE, Body=body)


def owed(contract: Contract, *events: Envelope, route: str = CARE) -> OwedOrder:
    return OwedOrder(
        FILE, tuple(Owed(*stamped(each).key, route, contract.version, ACCEPTED_MS) for each in events)
    )


def letters(cloud: Cloud) -> list[dict[str, Any]]:
    return [json.loads(each["Body"]) for each in cloud.received("operations.inbox")]


def test_what_is_owed_arrives_marked_and_is_recorded_as_of_then(
    cloud: Cloud, contract: Contract, replay: Replay
) -> None:
    lost, kept = event("1", ALARM), event("2")
    tapped(cloud, kept, lost, lost)

    assert replay(owed(contract, lost, route="daily-life-to-family")) == frozenset()

    (received,) = cloud.received("family-app.inbox")
    assert received["Body"] == f'{{"replayedtime":"{MARK}",' + stamped(lost).json[1:]
    assert received["MessageAttributes"]["ce_replayedtime"]["StringValue"] == MARK
    assert received["MessageAttributes"]["route"]["StringValue"] == "daily-life-to-family"
    assert cloud.received("alarm-centre.inbox") == []
    (line,) = cloud.decisions()
    expected = {
        "decided_at_ms": NOW_MS,
        "entered_at_ms": ACCEPTED_MS,
        "entered_by": "device.outbox",
        "contract_version": contract.version,
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


def test_of_two_senders_of_one_name_the_one_that_is_owed_gets_through(
    cloud: Cloud, contract: Contract, replay: Replay
) -> None:
    true, forged = event("1"), event("1", subject="forged")
    records = [
        TapRecord(
            ACCEPTED_MS, ACCEPTED_MS, client, f"devices/{client}/outbox", client, 0, each.json, None, None
        )
        for client, each in (("home-2", forged), ("home-1", true), ("home-2", forged))
    ]
    write(cloud, map(to_line, records))

    assert replay(owed(contract, true)) == frozenset()

    (received,) = cloud.received("care-analytics.inbox")
    replayed = parse_event(received["Body"])
    assert (replayed.key, "subject" in replayed.attributes) == (stamped(true).key, False)
    nobodys = Owed("home-3/", *true.claim, CARE, contract.version, ACCEPTED_MS)
    assert replay(OwedOrder(FILE, (nobodys,))) == frozenset()
    assert [each["deadletterreason"] for each in letters(cloud)] == ["not_in_tap"]


@pytest.mark.source("P4", "C1")
def test_what_is_at_best_effort_is_replayed_at_least_once(
    cloud: Cloud, contract: Contract, replay: Replay
) -> None:
    lost = event("1", deliveryguarantee="best_effort")
    tapped(cloud, lost)
    inbox = cloud.queues["care-analytics.inbox"]
    refusing = Unwilling(cloud.sqs, "send_message_batch", queue_urls={inbox})
    assert replay(owed(contract, lost), sqs=refusing) == {"m1"}
    assert cloud.decisions() == []
    assert replay(owed(contract, lost), attempt=2) == frozenset()
    assert len(cloud.received("care-analytics.inbox")) == 1
    (line,) = cloud.decisions()
    assert (line["outcome"], line["reason"], line["attempt"]) == ("delivered", "replay", 2)


def test_until_the_contract_in_force_is_seen_every_order_waits(
    cloud: Cloud, contract: Contract, replay: Replay
) -> None:
    lost = event("1", ALARM)
    tapped(cloud, lost)
    order = owed(contract, lost, route="daily-life-to-family")
    assert replay(order, "no order", is_seen=False) == {"m1", "m2"}
    assert cloud.decisions() == []
    assert replay(order) == frozenset()


def test_what_has_expired_meanwhile_is_recorded_and_not_sent(
    cloud: Cloud, contract: Contract, replay: Replay
) -> None:
    late = event("1", expirytime="2025-12-31T12:00:00Z")
    tapped(cloud, late)
    assert replay(owed(contract, late)) == frozenset()
    (line,) = cloud.decisions()
    assert (line["outcome"], line["reason"], line["entered_at_ms"]) == ("expired", "expirytime", ACCEPTED_MS)
    assert cloud.received("care-analytics.inbox") == []


def test_the_expiry_of_a_channel_counts_from_when_the_event_was_accepted(
    cloud: Cloud, contract: Contract, replay: Replay
) -> None:
    old = event("1")
    tapped(cloud, old, accepted_at_ms=NOW_MS - 8 * DAY_MS)
    order = OwedOrder(FILE, (Owed(*stamped(old).key, CARE, contract.version, NOW_MS - 8 * DAY_MS),))
    assert replay(order) == frozenset()
    assert [(each["outcome"], each["reason"]) for each in cloud.decisions()] == [
        ("expired", "channel_expiry")
    ]


@pytest.mark.parametrize("is_file_there", [True, False])
def test_an_event_that_is_not_in_the_tap_is_a_dead_letter_and_no_loop(
    cloud: Cloud, contract: Contract, replay: Replay, is_file_there: bool
) -> None:
    if is_file_there:
        tapped(cloud, event("2"))
    assert replay(owed(contract, event("1"))) == frozenset()
    (letter,) = letters(cloud)
    assert letter["deadletterreason"] == "not_in_tap"
    assert letter["data"]["channel"] == "replay"
    assert FILE in letter["data"]["detail"]
    # The event itself has no record: of an event that the tap does not have, the audit would call it forged.
    assert [line["type"] for line in cloud.decisions()] == ["org.eventplane.deadletter.v1"]


def test_a_destination_that_is_gone_is_a_dead_letter_of_the_event(
    cloud: Cloud, contract: Contract, replay: Replay
) -> None:
    lost = event("1")
    tapped(cloud, lost)
    document = json.loads(contract.canonical)
    document["participants"]["care-analytics"]["retired"] = True
    del document["routes"][CARE]
    queues = {name: url for name, url in cloud.queues.items() if name != "care-analytics.inbox"}

    assert (
        replay(owed(contract, lost), plane=compile_contract(document, "test"), queues=queues) == frozenset()
    )

    (letter,) = letters(cloud)
    assert (letter["id"], letter["deadletterreason"]) == (letter_id(*stamped(lost).key), "destination_gone")
    dead, told = sorted(cloud.decisions(), key=lambda line: line["outcome"])
    assert (dead["outcome"], dead["reason"], dead["route"]) == ("dead_lettered", "destination_gone", CARE)
    assert dead["contract_version"] == contract.version
    assert (told["outcome"], told["id"]) == ("delivered", letter["id"])


@pytest.mark.parametrize("version", ["0123456789abcdef", None])
def test_a_route_that_the_contract_of_then_does_not_give_is_a_bad_order(
    cloud: Cloud, contract: Contract, replay: Replay, version: str | None
) -> None:
    lost = event("1")
    tapped(cloud, lost)
    order = OwedOrder(FILE, (Owed(*stamped(lost).key, "no-route", version or contract.version, ACCEPTED_MS),))
    assert replay(order) == frozenset()
    (letter,) = letters(cloud)
    assert letter["deadletterreason"] == "bad_order"
    assert cloud.received("care-analytics.inbox") == []


def test_what_is_no_order_is_a_dead_letter_and_the_others_go_on(
    cloud: Cloud, contract: Contract, replay: Replay
) -> None:
    lost = event("1")
    tapped(cloud, lost)
    assert replay("by mistake", owed(contract, lost)) == frozenset()
    assert [each["deadletterreason"] for each in letters(cloud)] == ["bad_order"]
    assert len(cloud.received("care-analytics.inbox")) == 1


def grown(contract: Contract, cloud: Cloud, **participants: str) -> Contract:
    """The contract with a new service for readings and one for alarms."""
    document = json.loads(contract.canonical)
    for name, type in participants.items():
        document["participants"][name] = {"kind": "cloud_service", "description": "Is new."}
        document["routes"][f"to-{name}"] = {"filter": {"exact": {"type": type}}, "to": f"{name}.inbox"}
        cloud.queues[f"{name}.inbox"] = cloud.sqs.create_queue(QueueName=name)["QueueUrl"]
    return compile_contract(document, "test")


@pytest.mark.parametrize("named", [{"participant": "newcomer"}, {"route": "to-newcomer"}])
def test_a_past_window_goes_to_who_is_new_and_to_nobody_else(
    cloud: Cloud, contract: Contract, replay: Replay, named: dict[str, str]
) -> None:
    plane = grown(contract, cloud, newcomer=READING, other=READING)
    tapped(cloud, event("1"), event("2", ALARM), event("3"), event("3"))

    assert replay(WindowOrder(FILE, ACCEPTED_MS, ACCEPTED_MS + 1, **named), plane=plane) == frozenset()

    received = [parse_event(each["Body"]) for each in cloud.received("newcomer.inbox")]
    assert sorted(each.id for each in received) == ["1", "3"]
    assert {each.attributes["replayedtime"] for each in received} == {MARK}
    assert cloud.received("other.inbox") == cloud.received("care-analytics.inbox") == []
    lines = cloud.decisions()
    assert {(each["route"], each["reason"], each["entered_at_ms"]) for each in lines} == {
        ("to-newcomer", "replay", ACCEPTED_MS)
    }
    # Filed first: whoever finds the record finds the contract.
    assert f"contracts/{plane.version}.json" in cloud.keys("contracts/")


@pytest.mark.parametrize(("from_ms", "to_ms"), [(ACCEPTED_MS + 1, NOW_MS), (0, ACCEPTED_MS)])
def test_what_was_accepted_outside_of_the_window_is_not_sent(
    cloud: Cloud, replay: Replay, from_ms: int, to_ms: int
) -> None:
    tapped(cloud, event("1"))
    assert replay(WindowOrder(FILE, from_ms, to_ms, participant="care-analytics")) == frozenset()
    assert cloud.decisions() == []


@pytest.mark.parametrize("named", [{"participant": "nobody"}, {"route": "no-route"}])
def test_a_window_for_somebody_who_is_gone_is_a_dead_letter(
    cloud: Cloud, replay: Replay, named: dict[str, str]
) -> None:
    tapped(cloud, event("1"))
    assert replay(WindowOrder(FILE, 0, NOW_MS, **named)) == frozenset()
    assert [each["deadletterreason"] for each in letters(cloud)] == ["destination_gone"]


def test_a_window_tells_nobody_again_of_events_that_were_refused(
    cloud: Cloud, contract: Contract, replay: Replay
) -> None:
    document = json.loads(contract.canonical)
    document["event_types"][READING]["schema_check"] = "strict"
    tapped(cloud, event("1", dataschema="https://schemas.example.org/none"))
    plane = compile_contract(document, "test")
    assert replay(WindowOrder(FILE, 0, NOW_MS, participant="care-analytics"), plane=plane) == frozenset()
    assert cloud.decisions() == []
    assert letters(cloud) == []


def test_an_order_comes_again_when_a_queue_the_ledger_or_the_time_fails(
    cloud: Cloud, contract: Contract, replay: Replay
) -> None:
    lost = event("1")
    tapped(cloud, lost)
    order = owed(contract, lost)
    assert replay(order, sqs=Unwilling(cloud.sqs, "send_message_batch")) == {"m1"}
    assert cloud.decisions() == []
    refusing = Unwilling(cloud.sqs, "send_message_batch")
    assert replay(order, ledger_sqs=refusing, s3=Unwilling(cloud.s3, "put_object")) == {"m1"}
    assert replay(order, remaining_ms=lambda: 5_000) == {"m1"}
    cloud.received("care-analytics.inbox")
    assert replay(order) == frozenset()
    assert len(cloud.received("care-analytics.inbox")) == 1


def test_a_damaged_file_comes_again_and_does_not_touch_other_orders(
    cloud: Cloud, contract: Contract, replay: Replay
) -> None:
    tapped(cloud, event("1"))
    whole = cloud.s3.get_object(Bucket=BUCKET, Key=FILE)["Body"].read()
    cloud.s3.put_object(Bucket=BUCKET, Key=FILE, Body=whole[:-9])
    assert replay(owed(contract, event("1")), "by mistake") == {"m1"}
    assert [each["deadletterreason"] for each in letters(cloud)] == ["bad_order"]


def test_a_large_file_is_done_in_portions_each_with_its_part_of_the_ledger(
    cloud: Cloud, replay: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PORTION", 3)
    tapped(cloud, *(event(str(number)) for number in range(8)))
    assert replay(WindowOrder(FILE, 0, NOW_MS, participant="care-analytics")) == frozenset()
    queue = cloud.sqs.get_queue_attributes(QueueUrl=cloud.ledger, AttributeNames=["All"])["Attributes"]
    assert queue["ApproximateNumberOfMessages"] == "3"
    assert len(cloud.decisions()) == len(cloud.received("care-analytics.inbox")) == 8


def test_an_event_that_went_round_too_often_goes_no_further(
    cloud: Cloud, contract: Contract, replay: Replay
) -> None:
    tired, young = event("1", routerhops=8), event("2", routerhops=1)
    tapped(cloud, tired, young)
    assert replay(owed(contract, tired, young)) == frozenset()
    (received,) = cloud.received("care-analytics.inbox")
    assert parse_event(received["Body"]).attributes["routerhops"] == 2
    assert [each["deadletterreason"] for each in letters(cloud)] == ["hop_limit"]
