"""What the router does when queues, the archive, the clock or its own code fail it."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from eventplane.batch import pack
from eventplane.contract import Contract, compile_contract
from eventplane.contract.subscription import new_subscription, with_subscriptions
from eventplane.dead_letter import letter_id
from lambdas.common.queue import QueueMessage
from lambdas.router import filter_time
from lambdas.router.engine import UnknownSourceError, UnsupportedDestinationError, build_engine
from lambdas.router.planner import Planner
from lambdas.router.service import LIMITS
from tests.unit.lambdas.support import (
    ALARM,
    READING,
    Cloud,
    Run,
    Unwilling,
    event,
    frame,
    message,
    stamped,
    with_sends,
)


@pytest.mark.source("P4")
def test_a_queue_that_refuses_fails_only_the_messages_with_events_for_it(
    cloud: Cloud, run: Run, contract: Contract
) -> None:
    sqs = Unwilling(cloud.sqs, "send_message_batch", queue_urls={cloud.queues["alarm-centre.inbox"]})
    failed = run(
        message("m1", frame(event("1", ALARM).json.encode())),
        message("m2", frame(event("2").json.encode())),
        message("m3", frame(pack([event("3", ALARM), event("4", "com.example.unknown")]))),
        sqs=sqs,
        plane=with_sends(contract, "activity-service", "com.example.unknown"),
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
    assert [line["id"] for line in cloud.decisions()] == ["1", "3"]


def test_when_time_runs_out_the_rest_fails_and_what_was_sent_is_recorded(cloud: Cloud, run: Run) -> None:
    left = iter([LIMITS.planning_ms, LIMITS.planning_ms, LIMITS.reserve_ms, LIMITS.reserve_ms - 1])
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
    left = iter([LIMITS.planning_ms] * 6 + [LIMITS.reserve_ms])
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
    del document["participants"]["downlink"], document["routes"]["answers-to-downlink"]
    with pytest.raises(
        UnsupportedDestinationError, match=r"'down-to-devices' leads to 'device\.inbox'"
    ) as caught:
        build_engine(compile_contract(document, "test"), "device.outbox", cloud.queues)
    assert (caught.value.route, caught.value.destination) == ("down-to-devices", "device.inbox")


def test_a_source_without_a_channel_is_refused_at_once(contract: Contract, cloud: Cloud) -> None:
    with pytest.raises(UnknownSourceError, match=r"no channel 'gone\.outbox'") as caught:
        build_engine(contract, "gone.outbox", cloud.queues)
    assert (caught.value.version, caught.value.source) == (contract.version, "gone.outbox")


class Never:
    """SQS that will never take messages which contain `text`."""

    def __init__(self, sqs: Any, text: str, *, whole: bool = False, also_letters: bool = False) -> None:
        self._sqs = sqs
        self._text = text
        self._whole = whole
        self._also_letters = also_letters

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> Any:  # noqa: N803
        bad = [entry for entry in Entries if self._is_bad(entry["MessageBody"])]
        if bad and self._whole:
            error = {"Code": "AWS.SimpleQueueService.InvalidMessageContents", "Message": "no"}
            raise ClientError({"Error": error}, "SendMessageBatch")
        good = [entry for entry in Entries if entry not in bad]
        answer = self._sqs.send_message_batch(QueueUrl=QueueUrl, Entries=good) if good else {}
        code = {"Code": "InvalidParameterValue", "Message": "too odd", "SenderFault": True}
        return {
            "Successful": answer.get("Successful", []),
            "Failed": [{"Id": each["Id"], **code} for each in bad],
        }

    def _is_bad(self, body: str) -> bool:
        return self._text in body or (self._also_letters and "not_taken" in body)


@pytest.mark.source("P15")
@pytest.mark.parametrize("whole", [True, False])
def test_what_a_queue_will_never_take_is_a_dead_letter_of_that_route_at_once(
    cloud: Cloud, run: Run, whole: bool
) -> None:
    odd, fine = event("1", subject="odd"), event("2")
    sent = message("m1", frame(pack([odd, fine])), attempt=2)
    assert run(sent, sqs=Never(cloud.sqs, '"odd"', whole=whole)) == frozenset()

    assert [each["Body"] for each in cloud.received("care-analytics.inbox")] == [stamped(fine).json]
    (letter,) = (json.loads(each["Body"])["data"] for each in cloud.received("operations.inbox"))
    assert base64.b64decode(letter["original_base64"]).decode() == odd.json
    found = {name: letter[name] for name in ("reason", "route", "channel", "attempt")}
    assert found == {
        "reason": "not_taken",
        "route": "readings-to-care-analytics",
        "channel": "device.outbox",
        "attempt": 2,
    }
    assert cloud.outcomes() == [
        ("1", "care-analytics.inbox", "dead_lettered"),
        ("2", "care-analytics.inbox", "delivered"),
        (letter_id(*stamped(odd).key), "operations.inbox", "delivered"),
    ]


def test_without_its_letter_the_original_comes_again(cloud: Cloud, run: Run) -> None:
    sqs = Never(cloud.sqs, '"odd"', also_letters=True)
    assert run(message("m1", frame(event("1", subject="odd").json.encode())), sqs=sqs) == {"m1"}
    assert cloud.outcomes() == []


@pytest.mark.source("P17")
def test_in_a_fifo_queue_the_later_ones_of_a_group_wait_for_the_one_that_failed(
    cloud: Cloud, run: Run, contract: Contract
) -> None:
    def queued(id: str, type: str, group: str) -> QueueMessage:
        return replace(message(id, event(id, type).json), group=group)

    sqs = Unwilling(cloud.sqs, "send_message_batch", queue_urls={cloud.queues["alarm-centre.inbox"]})
    failed = run(
        queued("m1", ALARM, "a"),
        queued("m2", READING, "a"),
        queued("m3", READING, "b"),
        source="family-app.outbox",
        plane=with_sends(contract, "family-app", ALARM, READING),
        sqs=sqs,
    )
    assert failed == {"m1", "m2"}
    assert {json.loads(each["Body"])["id"] for each in cloud.received("care-analytics.inbox")} == {"m3"}


def test_nothing_is_planned_when_it_could_not_be_finished(cloud: Cloud, run: Run) -> None:
    left = iter([LIMITS.planning_ms])
    messages = [message(f"m{each}", frame(event(str(each)).json.encode())) for each in (1, 2)]
    assert run(*messages, remaining_ms=lambda: next(left, LIMITS.planning_ms - 1)) == {"m2"}


COSTLY = {"sql": f"type = '{READING}' AND subject LIKE '%kitchen%'"}
CHEAP = {"exact": {"type": READING}}


def subscribed(contract: Contract) -> Contract:
    added = [
        new_subscription("care-analytics", name, filter, "2026-01-01T00:00:00.000Z")
        for name, filter in (("cheap", CHEAP), ("costly", COSTLY))
    ]
    return with_subscriptions(contract, added)[0]


def test_costly_subscriptions_are_left_out_for_a_message_whose_filters_exceed_their_time(
    cloud: Cloud,
    run: Run,
    contract: Contract,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(filter_time, "MESSAGE_SECONDS", 0.0)
    plane = subscribed(contract)
    sent = frame(pack([event("1", subject="in the kitchen"), event("2", ALARM)]))
    assert run(message("m1", sent), plane=plane) == frozenset()

    # The contract's own routes and the cheap subscription are served.
    assert {line["route"] for line in cloud.decisions() if line["id"] == "1"} == {
        "readings-to-care-analytics",
        "care-analytics-subscribes-cheap",
    }
    assert len(cloud.received("alarm-centre.inbox")) == 1
    # The ledger names a contract that the archive has, so that the audit expects just this.
    (version,) = {line["contract_version"] for line in cloud.decisions()}
    assert version not in (plane.version, contract.version)
    assert f"contracts/{version}.json" in cloud.keys("contracts/")
    (said,) = (vars(each) for each in caplog.records if each.levelname == "WARNING")
    assert (said["routes"], said["message_id"]) == (["care-analytics-subscribes-costly"], "m1")


def test_within_their_time_costly_subscriptions_are_served(
    cloud: Cloud, run: Run, contract: Contract
) -> None:
    plane = subscribed(contract)
    run(message("m1", frame(pack([event("1", subject="in the kitchen"), event("2", ALARM)]))), plane=plane)
    lines = cloud.decisions()
    assert "care-analytics-subscribes-costly" in {line["route"] for line in lines}
    assert {line["contract_version"] for line in lines} == {plane.version}


def test_a_contract_of_the_operator_alone_has_no_time_limit(
    cloud: Cloud, run: Run, contract: Contract, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filter_time, "MESSAGE_SECONDS", 0.0)
    run(message("m1", frame(pack([event("1"), event("2")]))))
    assert {line["contract_version"] for line in cloud.decisions()} == {contract.version}
