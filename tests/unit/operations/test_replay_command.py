"""`eventplane replay`: what is asked of the replay, and what is only said."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest

from eventplane.contract import Contract
from eventplane.contract.subscription import new_subscription
from eventplane.contract.subscription_table import PARTITION, SORT, SUBSCRIPTIONS_TABLE, subscription_item
from eventplane.reasons import Outcome
from eventplane.replay import Order, Owed, OwedOrder, WindowOrder, parse_order
from eventplane.resource_names import resource_name
from tests.dynamodb import create_table
from tests.unit.operations.support import (
    ACCEPTED_MS,
    ENVIRONMENT,
    READING,
    Plane,
    event,
    ledger_line,
    tap_line,
)

Run = Callable[..., tuple[int, str, str]]
RunJson = Callable[..., Any]
DAY = "2026-01-01"
FILE = f"tap/date={DAY}/hour=00/a.json.gz"
CARE = ("readings-to-care-analytics", "care-analytics.inbox")
MANIFEST = "audit/replay"
WINDOW = ("--from", DAY, "--to", "2026-01-01T00:00:00.001Z")


@pytest.fixture
def orders(plane: Plane) -> Callable[[], list[Order]]:
    """The orders that wait, each read once."""
    plane.create_pair("replay")
    return lambda: [parse_order(each["Body"]) for each in plane.received("replay")]


def row(id: str, file: str = FILE, route: str = CARE[0]) -> str:
    """A line of the audit's manifest, as Spark writes it."""
    return json.dumps(
        {
            "sender": "home-1/",
            "source": "/homes/1/health",
            "id": id,
            "type": READING,
            "device": "home-1",
            "route": route,
            "destination": CARE[1],
            "contract_version": "0123456789abcdef",
            "entered_at_ms": ACCEPTED_MS,
            "archive_file": file,
        }
    )


def owed(id: str) -> Owed:
    return Owed("home-1/", "/homes/1/health", id, CARE[0], "0123456789abcdef", ACCEPTED_MS)


def test_what_an_audit_misses_is_ordered_a_file_an_order(
    plane: Plane, orders: Callable[[], list[Order]], run: Run
) -> None:
    plane.archive(MANIFEST, [row("1"), row("2", "tap/b"), row("3")], date=DAY)

    tried = run("replay", "--date", DAY, "--dry-run")
    assert tried[0] == 0
    assert "3 deliveries of 3 events in 2 files: 2 orders would be sent, nothing was changed" in tried[1]
    assert orders() == []

    status, out, _ = run("replay", "--date", DAY)
    assert status == 0
    assert "2 orders sent" in out
    assert f"{CARE[0]}  3" in out
    assert sorted(orders(), key=lambda each: each.file) == [
        OwedOrder("tap/b", (owed("2"),)),
        OwedOrder(FILE, (owed("1"), owed("3"))),
    ]


def test_one_route_can_be_sent_again_alone(
    plane: Plane, orders: Callable[[], list[Order]], run_json: RunJson
) -> None:
    plane.archive(MANIFEST, [row("1"), row("1", route="another")], date=DAY)
    document = run_json("replay", "--date", DAY, "--route", CARE[0])
    assert document == {
        "date": DAY,
        "deliveries": 1,
        "events": 1,
        "files": 1,
        "routes": {CARE[0]: 1},
        "orders": 1,
        "sent": True,
    }
    assert orders() == [OwedOrder(FILE, (owed("1"),))]


def test_a_day_of_which_nothing_is_missed_says_so(plane: Plane, run: Run) -> None:
    plane.archive(MANIFEST, [row("1")], date="2026-01-02")
    status, out, _ = run("replay", "--date", DAY)
    assert (status, "nothing to send again" in out) == (1, True)


def test_a_damaged_manifest_is_told_and_the_rest_is_sent(
    plane: Plane, orders: Callable[[], list[Order]], run: Run
) -> None:
    key = plane.archive(MANIFEST, [row("1"), '{"route": "half of a row"}'], date=DAY)
    status, _, told = run("replay", "--date", DAY)
    assert (status, key in told) == (1, True)
    assert orders() == [OwedOrder(FILE, (owed("1"),))]


@pytest.mark.parametrize("named", [("--participant", "care-analytics"), ("--route", CARE[0])])
def test_a_past_window_is_ordered_file_by_file(
    plane: Plane, orders: Callable[[], list[Order]], run: Run, named: tuple[str, str]
) -> None:
    lines = [tap_line(event("1").json), tap_line(event("2", "org.example.other").json, 1), "no record"]
    file = plane.archive("tap", [*lines, lines[0]], date=DAY).replace("hour=12", "hour=00")
    plane.s3.copy({"Bucket": plane.bucket, "Key": file.replace("00/", "12/")}, plane.bucket, file)

    status, out, _ = run("replay", *WINDOW, *named, "--late-hours", "0", "--dry-run")
    assert "1 files of the tap with 1 deliveries: 1 orders would be sent" in out
    assert status == 1  # a line of the tap is no record
    assert orders() == []

    assert run("replay", *WINDOW, *named)[0] == 0
    chosen = {"participant": named[1]} if named[0] == "--participant" else {"route": named[1]}
    assert orders() == [WindowOrder(file, ACCEPTED_MS, ACCEPTED_MS + 1, **chosen)]


def test_what_its_sender_may_not_send_is_not_counted(plane: Plane, run: Run) -> None:
    forged = event("1", "org.eventplane.notice.carer.v1")
    plane.archive("tap", [tap_line(forged.json)], date=DAY)
    _, out, _ = run("replay", *WINDOW, "--participant", "carers", "--late-hours", "23", "--dry-run")
    assert "with 0 deliveries" in out


def test_a_subscriber_gets_a_past_window_over_its_own_route(
    plane: Plane, orders: Callable[[], list[Order]], run: Run
) -> None:
    dynamodb = boto3.client("dynamodb")
    create_table(dynamodb, resource_name(ENVIRONMENT, SUBSCRIPTIONS_TABLE), PARTITION, SORT)
    own = new_subscription("carers", "all", {"exact": {"type": READING}}, "2026-01-02T00:00:00Z")
    for item in (subscription_item(own), {PARTITION: {"S": "carers"}, SORT: {"S": "broken"}}):
        dynamodb.put_item(TableName=resource_name(ENVIRONMENT, SUBSCRIPTIONS_TABLE), Item=item)
    plane.archive("tap", [tap_line(event("1").json)], date=DAY)

    status, out, _ = run("replay", *WINDOW, "--route", own.route, "--dry-run", "--late-hours", "23")
    assert (status, "with 1 deliveries: 1 orders" in out) == (0, True)
    assert run("replay", *WINDOW, "--route", own.route, "--late-hours", "23")[0] == 0
    (order,) = orders()
    assert isinstance(order, WindowOrder)
    assert order.route == own.route


def test_a_copy_of_the_archive_is_counted_without_a_cloud(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / MANIFEST / f"date={DAY}"
    folder.mkdir(parents=True)
    (folder / "part.json.gz").write_bytes(gzip.compress(row("1").encode()))
    (folder / ".part.json.gz.crc").write_bytes(b"crc")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    status, out, told = run("replay", "--date", DAY, "--archive", str(tmp_path), "--dry-run")
    assert (status, told) == (0, "")
    assert "1 deliveries of 1 events in 1 files" in out


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        ((), "say what to send"),
        (("--from", DAY), "say what to send"),
        (("--from", DAY, "--to", DAY, "--route", CARE[0]), "with a later --to"),
        (WINDOW, "say who gets the window"),
        ((*WINDOW, "--route", CARE[0], "--participant", "carers"), "say who gets the window"),
        ((*WINDOW, "--route", CARE[0], "--late-hours", "-1"), "--late-hours counts on"),
        ((*WINDOW, "--participant", "nobody"), "its services are alarm-centre"),
        ((*WINDOW, "--participant", "call-service"), "its services are alarm-centre"),
        ((*WINDOW, "--route", "everything-to-cloud"), "no route of the cloud"),
        (("--date", DAY, "--participant", "carers"), "leave out the rest"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_remedy(
    plane: Plane, run: Run, arguments: tuple[str, ...], remedy: str
) -> None:
    status, _, told = run("replay", *arguments)
    assert (status, remedy in told) == (2, True)


def test_an_environment_without_the_queue_is_to_be_deployed(plane: Plane, run: Run) -> None:
    plane.archive(MANIFEST, [row("1")], date=DAY)
    status, _, told = run("replay", "--date", DAY)
    assert (status, "has no queue for replays; deploy it again" in told) == (1, True)


def test_what_sqs_refuses_is_told(plane: Plane, orders: Callable[[], list[Order]], run: Run) -> None:
    plane.archive(MANIFEST, [row("1")], date=DAY)
    plane.client.faults["send_message_batch"] = lambda **_: {"Failed": [{"Id": "0", "Code": "Throttled"}]}
    status, _, told = run("replay", "--date", DAY)
    assert (status, "SQS refused an order (Throttled) after 0 were sent" in told) == (1, True)


def test_trace_shows_a_replay_and_expects_no_more_by_its_contract(
    plane: Plane, contract: Contract, run_json: RunJson
) -> None:
    sent = event("17")
    plane.archive("tap", [tap_line(sent.json)])
    then = ledger_line(sent, Outcome.DELIVERED, route=CARE, contract_version=contract.version)
    later = ledger_line(sent, Outcome.DELIVERED, route=("new", "new.inbox"), reason="replay")
    plane.archive("ledger", [then, later])
    (document,) = run_json("trace", sent.source, "17")["events"]
    assert document["missing"] == []
    where = [(each["where"], each["what"], each.get("reason")) for each in document["stations"]]
    assert where[1:] == [("router of device.outbox", "delivered", None), ("replay", "delivered", "replay")]
