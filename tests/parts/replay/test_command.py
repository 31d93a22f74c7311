"""`eventplane replay`, and its orders to send again."""

import json
from collections.abc import Callable

import boto3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane.contract.subscription import new_subscription
from eventplane.contract.subscription_table import PARTITION, SORT, SUBSCRIPTION, SUBSCRIPTIONS_TABLE
from eventplane.envelope import write_event
from eventplane.limits import MAX_EVENT_BYTES
from eventplane.resource_names import resource_name
from eventplane.sqs_binding import to_message
from parts.replay.order import (
    MAX_ORDER_BYTES,
    Order,
    OrderError,
    Owed,
    OwedOrder,
    WindowOrder,
    marked,
    order_text,
    orders_of,
    parse_order,
)
from tests.dynamodb import create_table
from tests.unit.operations.support import (
    ACCEPTED_MS,
    ENVIRONMENT,
    READING,
    Folder,
    Plane,
    Run,
    RunJson,
    event,
    tap_line,
)

DAY = "2026-01-01"
FILE = f"tap/date={DAY}/hour=00/a.json.gz"
CARE = ("readings-to-care-analytics", "care-analytics.inbox")
MANIFEST = "audit/replay"
WINDOW = ("--from", DAY, "--to", "2026-01-01T00:00:00.001Z")


@pytest.fixture
def orders(plane: Plane) -> Callable[[], list[Order]]:
    """The orders that wait, each read once."""
    plane.create_pair("replay")
    return lambda: sorted(
        map(parse_order, {each["Body"] for each in plane.received("replay")}), key=lambda each: each.file
    )


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


def test_what_an_audit_reports_lost_is_ordered_a_file_an_order(
    plane: Plane, folder: Folder, orders: Callable[[], list[Order]], run: Run, run_json: RunJson
) -> None:
    rows = [row("1"), row("2", "tap/b"), row("3"), row("1", route="another")]
    folder.write(MANIFEST, rows, DAY)
    folder.put(f"{MANIFEST}/date={DAY}/.one.json.gz.crc", b"crc")
    status, out, _ = run("replay", "--date", DAY, "--dry-run", *folder.named)
    assert status == 0
    assert "4 deliveries of 3 events in 2 files: 2 orders would be sent, nothing was changed" in out
    assert f"{CARE[0]}  3" in out
    assert orders() == []

    assert run_json("replay", "--date", DAY, "--route", CARE[0], *folder.named) == {
        "date": DAY,
        "deliveries": 3,
        "events": 3,
        "files": 2,
        "routes": {CARE[0]: 3},
        "orders": 2,
        "sent": True,
    }
    assert orders() == [OwedOrder("tap/b", (owed("2"),)), OwedOrder(FILE, (owed("1"), owed("3")))]


@pytest.mark.lost_answers
def test_a_damaged_manifest_is_told(plane: Plane, orders: Callable[[], list[Order]], run: Run) -> None:
    key = plane.archive(MANIFEST, [row("1"), '{"route": "half of a row"}'], date=DAY)
    status, out, _ = run("replay", "--date", "2026-01-02")
    assert (status, "nothing to send again" in out) == (1, True)
    status, _, err = run("replay", "--date", DAY)
    assert (status, key in err) == (1, True)
    assert orders() == [OwedOrder(FILE, (owed("1"),))]


@pytest.fixture
def tap(folder: Folder) -> str:
    """A file of the tap with an event twice, others and damage; its name."""
    forged = event("3", "org.eventplane.notice.carer.v1")
    lines = [tap_line(event("1").json), tap_line(event("2", "org.example.other").json, 1), "no record"]
    lines += [tap_line(forged.json, 2), lines[0]]
    file = folder.write("tap", lines, DAY).replace("hour=12", "hour=00")
    folder.put(file, (folder.root / file.replace("hour=00", "hour=12")).read_bytes())
    return file


@pytest.mark.parametrize("named", [("--participant", "care-analytics"), ("--route", CARE[0])])
def test_a_past_window_is_ordered_file_by_file(
    folder: Folder, tap: str, orders: Callable[[], list[Order]], run: Run, named: tuple[str, str]
) -> None:
    words = ("replay", *WINDOW, *named, *folder.named)
    status, out, _ = run(*words, "--late-hours", "0", "--dry-run")
    assert "1 files of the tap with 1 deliveries: 1 orders would be sent" in out
    assert status == 1  # a line of the tap is no record
    assert run(*words, "--late-hours", "0")[0] == 0
    chosen = {"participant": named[1]} if named[0] == "--participant" else {"route": named[1]}
    assert orders() == [WindowOrder(tap, ACCEPTED_MS, ACCEPTED_MS + 1, **chosen)]


def test_an_event_that_its_sender_may_not_send_is_not_counted(folder: Folder, tap: str, run: Run) -> None:
    out = run("replay", *WINDOW, "--participant", "carers", "--dry-run", *folder.named)[1]
    assert "with 0 deliveries" in out


def test_its_own_route(folder: Folder, tap: str, orders: Callable[[], list[Order]], run: Run) -> None:
    dynamodb, table = boto3.client("dynamodb"), resource_name(ENVIRONMENT, SUBSCRIPTIONS_TABLE)
    create_table(dynamodb, table, PARTITION, SORT)
    own = new_subscription("carers", "all", {"exact": {"type": READING}}, "2026-01-02T00:00:00Z")
    for item in (SUBSCRIPTION.to_item(own), {PARTITION: {"S": "carers"}, SORT: {"S": "broken"}}):
        dynamodb.put_item(TableName=table, Item=item)
    assert run("replay", *WINDOW, "--route", own.route, "--late-hours", "0", *folder.named)[0] == 0
    assert orders() == [WindowOrder(tap, ACCEPTED_MS, ACCEPTED_MS + 1, route=own.route)]


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
def test_nonsense_is_refused(folder: Folder, run: Run, arguments: tuple[str, ...], remedy: str) -> None:
    status, _, err = run("replay", *arguments, "--dry-run", *folder.named)
    assert (status, remedy in err) == (2, True)


def test_a_missing_queue_and_a_refusal_of_sqs_are_reported(plane: Plane, folder: Folder, run: Run) -> None:
    folder.write(MANIFEST, [row("1")], DAY)
    status, _, err = run("replay", "--date", DAY, *folder.named)
    assert (status, "has no queue for replays; deploy it again" in err) == (1, True)
    plane.create_pair("replay")
    plane.client.faults["send_message_batch"] = lambda **_: {"Failed": [{"Id": "0", "Code": "Throttled"}]}
    status, _, err = run("replay", "--date", DAY, *folder.named)
    assert (status, "SQS refused an order (Throttled) after 0 were sent" in err) == (1, True)


NOW_MS = 1_767_225_600_000
MARK = "2026-01-01T00:00:00.000Z"
ORDERED_FILE = "tap/date=2026-01-01/hour=00/a.json.gz"

OWED = st.builds(
    Owed,
    sender=st.text(),
    source=st.text(),
    id=st.text(),
    route=st.text(),
    contract_version=st.text(),
    entered_at_ms=st.integers(0, 2**45),
)


def test_a_copy_has_the_mark_and_sqs_shows_it() -> None:
    event = write_event({"id": "1", "source": "/a", "type": "t", "replayedtime": "2025-01-01T00:00:00Z"})
    after = marked(event, NOW_MS)
    assert after.attributes == {**event.attributes, "replayedtime": MARK}
    assert to_message(after).hints["ce_replayedtime"] == MARK


def test_an_event_without_room_for_the_mark_is_sent_unmarked() -> None:
    bare = len(write_event({"id": "1", "source": "/a", "type": "t"}, "").json)
    full = write_event({"id": "1", "source": "/a", "type": "t"}, "x" * (MAX_EVENT_BYTES - bare))
    assert len(full.json) == MAX_EVENT_BYTES
    assert marked(full, NOW_MS) is full


@given(
    st.builds(OwedOrder, st.just(ORDERED_FILE), st.lists(OWED, max_size=5).map(tuple))
    | st.builds(WindowOrder, st.just(ORDERED_FILE), st.just(1), st.just(2), participant=st.just("family-app"))
    | st.builds(WindowOrder, st.just(ORDERED_FILE), st.just(1), st.just(2), route=st.just("r"))
)
def test_an_order_is_read_as_it_was_written(order: Order) -> None:
    assert parse_order(order_text(order)) == order


@given(owed=st.lists(OWED, min_size=1), copies=st.integers(1, 400))
def test_orders_have_everything_once_and_fit_a_dead_letter(owed: list[Owed], copies: int) -> None:
    orders = list(orders_of(ORDERED_FILE, owed * copies))
    assert [each for order in orders for each in order.owed] == owed * copies
    assert all(len(order.owed) == 1 or len(order_text(order).encode()) <= MAX_ORDER_BYTES for order in orders)
    assert {order.file for order in orders} == {ORDERED_FILE}


GOOD = json.loads(order_text(WindowOrder(ORDERED_FILE, 1, 2, route="r")))


@pytest.mark.parametrize(
    "body",
    [
        "no JSON",
        "[]",
        "1",
        "{}",
        "[" * 100_000,
        json.dumps({"file": ORDERED_FILE, "owed": [{"source": "/a"}]}),
        json.dumps({"file": ORDERED_FILE, "owed": {"source": "/a"}}),
        json.dumps({"file": ORDERED_FILE, "owed": [], "more": 1}),
        json.dumps(GOOD | {"file": "contracts/1.json"}),
        json.dumps(GOOD | {"from_ms": "1"}),
        json.dumps(GOOD | {"from_ms": True}),
        json.dumps(GOOD | {"participant": "both"}),
        json.dumps(GOOD | {"route": None}),
    ],
)
def test_malformed_orders_are_refused(body: str) -> None:
    with pytest.raises(OrderError, match="eventplane replay"):
        parse_order(body)
