"""What the router does when queues, the archive, the clock or its own code fail it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eventplane.batch import pack
from eventplane.contract import Contract, compile_contract
from lambdas.common.archive import Archive
from lambdas.common.queue import QueueMessage
from lambdas.common.sqs import SqsSender
from lambdas.router.planner import Planner
from lambdas.router.service import RESERVE_MS, RouterService, UnsupportedDestinationError
from tests.unit.lambdas.support import ALARM, BUCKET, NOW_MS, Cloud, Run, Unwilling, event, frame, message


def test_a_queue_that_refuses_fails_only_the_messages_with_events_for_it(cloud: Cloud, run: Run) -> None:
    sqs = Unwilling(cloud.sqs, "send_message_batch", queue_urls={cloud.queues["alarm-centre.inbox"]})
    failed = run(
        message("m1", frame(event("1", ALARM).json.encode())),
        message("m2", frame(event("2").json.encode())),
        message("m3", frame(pack([event("3", ALARM), event("4", "com.example.unknown")]))),
        sqs=sqs,
    )

    assert failed == {"m1", "m3"}
    # What was sent of a failed message is a fact; what was only decided is decided again.
    assert cloud.outcomes() == [
        ("1", "family-app.inbox", "delivered"),
        ("2", "care-analytics.inbox", "delivered"),
        ("3", "family-app.inbox", "delivered"),
    ]


def test_a_batch_that_a_queue_takes_in_part_fails_only_the_rest(cloud: Cloud, run: Run) -> None:
    class Choosy:
        def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> Any:  # noqa: N803
            return {
                "Successful": [{"Id": entry["Id"]} for entry in Entries if '"2"' not in entry["MessageBody"]],
                "Failed": [
                    {"Id": entry["Id"], "Code": "InternalError", "SenderFault": False}
                    for entry in Entries
                    if '"2"' in entry["MessageBody"]
                ],
            }

    messages = [message(f"m{each}", frame(event(str(each)).json.encode())) for each in (1, 2, 3)]
    assert run(*messages, sqs=Choosy()) == {"m2"}
    assert [line["id"] for line in cloud.lines("ledger/")] == ["1", "3"]


@pytest.mark.parametrize("code", ["AccessDenied", "SlowDown", "NoSuchBucket"])
def test_without_a_ledger_nothing_is_acknowledged(cloud: Cloud, run: Run, code: str) -> None:
    s3 = Unwilling(cloud.s3, "put_object", code=code)
    messages = [message(f"m{each}", frame(event(str(each)).json.encode())) for each in (1, 2)]
    assert run(*messages, s3=s3) == {"m1", "m2"}


def test_when_time_runs_out_the_rest_fails_and_what_was_sent_is_recorded(cloud: Cloud, run: Run) -> None:
    left = iter([RESERVE_MS, RESERVE_MS - 1])
    failed = run(
        message("m1", frame(event("1", ALARM).json.encode())),
        message("m2", frame(event("2").json.encode())),
        remaining_ms=lambda: next(left, 0),
    )

    assert failed == {"m1", "m2"}
    assert cloud.outcomes() == [("1", "alarm-centre.inbox", "delivered")]


def test_the_urgent_goes_first_across_messages(cloud: Cloud, run: Run) -> None:
    bulk = [message(f"m{each}", frame(event(str(each)).json.encode())) for each in range(5)]
    urgent = message("m5", frame(event("alarm", "org.eventplane.alarm.clinical.v1").json.encode()))
    left = iter([RESERVE_MS])
    run(*bulk, urgent, remaining_ms=lambda: next(left, 0))

    assert cloud.outcomes() == [("alarm", "alarm-centre.inbox", "delivered")]


def test_a_defect_met_by_one_message_does_not_touch_the_others(
    cloud: Cloud, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Planner.plan

    def broken(self: Planner, queued: QueueMessage, now_ms: int) -> Any:
        return 1 / 0 if queued.id == "m1" else plan(self, queued, now_ms)

    monkeypatch.setattr(Planner, "plan", broken)
    assert run(message("m1", "?"), message("m2", frame(event("2").json.encode()))) == {"m1"}
    assert cloud.outcomes() == [("2", "care-analytics.inbox", "delivered")]


def test_a_message_whose_plan_breaks_halfway_sends_nothing(
    cloud: Cloud, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Planner.plan

    def broken(self: Planner, queued: QueueMessage, now_ms: int) -> Any:
        yield from plan(self, queued, now_ms)
        raise ZeroDivisionError

    monkeypatch.setattr(Planner, "plan", broken)
    assert run(message("m1", frame(event("1").json.encode()))) == {"m1"}
    assert cloud.received("care-analytics.inbox") == []
    assert cloud.outcomes() == []


def test_many_events_leave_in_full_batches(cloud: Cloud, run: Run) -> None:
    calls: list[int] = []

    class Counting:
        def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> Any:  # noqa: N803
            calls.append(len(Entries))
            return cloud.sqs.send_message_batch(QueueUrl=QueueUrl, Entries=Entries)

    frames = [frame(pack([event(f"{each}-{number}") for number in range(7)])) for each in range(3)]
    run(*(message(f"m{at}", body) for at, body in enumerate(frames)), sqs=Counting())
    assert calls == [10, 10, 1]


def test_a_route_that_this_router_cannot_serve_is_refused_at_once(contract: Contract, cloud: Cloud) -> None:
    document = json.loads(contract.canonical)
    document["routes"]["down"] = {"filter": {"exact": {"type": "x"}}, "to": "device.inbox"}
    with pytest.raises(UnsupportedDestinationError, match=r"'down' leads to 'device\.inbox'") as caught:
        RouterService(
            contract=compile_contract(document, "test"),
            source="device.outbox",
            queues=cloud.queues,
            sender=SqsSender(cloud.sqs),
            archive=Archive(cloud.s3, BUCKET),
            clock=lambda: NOW_MS,
        )
    assert (caught.value.route, caught.value.destination) == ("down", "device.inbox")
