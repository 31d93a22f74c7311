"""Orders to send again, and the mark that a copy gets."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane.envelope import write_event
from eventplane.limits import MAX_EVENT_BYTES
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

NOW_MS = 1_767_225_600_000
MARK = "2026-01-01T00:00:00.000Z"
FILE = "tap/date=2026-01-01/hour=00/a.json.gz"

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
    st.builds(OwedOrder, st.just(FILE), st.lists(OWED, max_size=5).map(tuple))
    | st.builds(WindowOrder, st.just(FILE), st.just(1), st.just(2), participant=st.just("family-app"))
    | st.builds(WindowOrder, st.just(FILE), st.just(1), st.just(2), route=st.just("r"))
)
def test_an_order_is_read_as_it_was_written(order: Order) -> None:
    assert parse_order(order_text(order)) == order


@given(owed=st.lists(OWED, min_size=1), copies=st.integers(1, 400))
def test_orders_have_everything_once_and_fit_a_dead_letter(owed: list[Owed], copies: int) -> None:
    orders = list(orders_of(FILE, owed * copies))
    assert [each for order in orders for each in order.owed] == owed * copies
    assert all(len(order.owed) == 1 or len(order_text(order).encode()) <= MAX_ORDER_BYTES for order in orders)
    assert {order.file for order in orders} == {FILE}


GOOD = json.loads(order_text(WindowOrder(FILE, 1, 2, route="r")))


@pytest.mark.parametrize(
    "body",
    [
        "no JSON",
        "[]",
        "1",
        "{}",
        "[" * 100_000,
        json.dumps({"file": FILE, "owed": [{"source": "/a"}]}),
        json.dumps({"file": FILE, "owed": {"source": "/a"}}),
        json.dumps({"file": FILE, "owed": [], "more": 1}),
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
