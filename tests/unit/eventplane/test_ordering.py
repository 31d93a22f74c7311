"""Positions in ordered inboxes: what is counted, by whom, and when a position means something."""

from typing import Any

import pytest

from eventplane.contract import Contract, ContractError, Priority, contract_document
from eventplane.envelope import Envelope, Sender, write_event
from eventplane.interest.announcement import new_announcement, with_interest
from eventplane.ordering import OrderedInboxes, Stream, next_positions, position_in, positions_text
from eventplane.sending import sent_again, stamp_sender
from eventplane_client.memory import MemoryPlane, MemoryTransport
from eventplane_client.outbox_order import OutboxOrder
from tests.small_contract import small_contract, with_changes

pytestmark = pytest.mark.source("P17", "F3")

RING, KNOCK = "org.example.ring.v1", "org.example.knock.v1"


def plane(*, desk: dict[str, Any] | None = None, rings: dict[str, Any] | None = None) -> Contract:
    """A bell on a device and a porter in the cloud, whose rings go to the ordered inbox of a desk."""
    ordered = {"kind": "cloud_service", "inbox": {"ordering": "source", **(desk or {})}}
    return small_contract(
        {
            "device": "device",
            "bell": "device_service",
            "porter": "cloud_service",
            "desk": ordered,
            "hall": "cloud_service",
        },
        {
            "up": ({"prefix": {"type": "org."}}, "device.outbox"),
            "rings": {"filter": {"exact": {"type": RING}}, "to": "desk.inbox", **(rings or {})},
            "all": ({"prefix": {"type": "org."}}, "hall.inbox"),
        },
    )


def event(id: str = "1", type: str = RING, **attributes: str) -> Envelope:
    return write_event({"id": id, "source": "/bell", "type": type, **attributes})


def counters(contract: Contract, ringing: Envelope) -> list[str]:
    return OrderedInboxes(contract).counters(ringing, Priority.NORMAL, contract.device.outbox)


def test_only_events_routed_to_an_ordered_inbox_are_counted() -> None:
    (counter,) = counters(plane(), event())
    assert counter.startswith("desk/normal/")
    assert counters(plane(), event(type=KNOCK)) == []
    assert counters(plane(desk={"ordering": "none"}), event()) == []
    assert counters(plane(desk={"transport": "sqs_fifo"}), event()) == []
    assert counters(plane(), event(deliveryguarantee="best_effort")) == []
    assert counters(plane(rings={"delivery_guarantee": "best_effort"}), event()) == []


def test_numbers_have_no_gaps() -> None:
    first = next_positions(["desk/normal/x", "desk/urgent/x"], {})
    assert first == {"desk/normal/x": 1, "desk/urgent/x": 1}
    assert next_positions(["desk/normal/x"], first) == {"desk/normal/x": 2}


def test_a_position_is_found_by_its_inbox() -> None:
    text = positions_text({"desk/normal/x": 17, "desk-2/urgent/x": 3})
    numbered = event(orderin=text, deviceepoch="e").stamped(senderdevice="home-1", senderservice="bell")
    assert position_in(numbered, "desk") == (Stream("home-1/", "e", "desk/normal/x"), 17)
    assert position_in(numbered, "desk-2") == (Stream("home-1/", "e", "desk-2/urgent/x"), 3)
    assert position_in(numbered, "hall") is None
    assert position_in(event(), "desk") is None


FROM_DEVICE = {"deviceepoch": "e", "senderdevice": "home-1"}


@pytest.mark.parametrize(
    "attributes",
    [
        *(
            FROM_DEVICE | {"orderin": text}
            for text in ("desk/normal/x/0", "desk/normal/x/-1", "desk", "desk/1/", f"desk/n/x/{'9' * 40}")
        ),
        FROM_DEVICE | {"orderin": f"desk/{'n' * 100}/x/1"},
        FROM_DEVICE | {"orderin": "desk/normal/x/1", "deviceepoch": "e" * 100},
        # Without an epoch of the service it was counted by another sender.
        {"orderin": "desk/urgent/x/17", "deviceepoch": "e", "senderservice": "porter"},
    ],
)
def test_a_malformed_or_foreign_position_is_ignored(attributes: dict[str, str]) -> None:
    assert position_in(event(**attributes), "desk") is None


def test_a_position_counted_by_other_guarantees_is_removed() -> None:
    (counter,) = counters(plane(), event())
    numbered = event(orderin=f"{counter}/4")
    by_type = with_changes(plane(), {f"event_types/{RING}/delivery_guarantee": "best_effort"})
    by_channel = with_changes(plane(), {"participants/porter/outbox/delivery_guarantee": "best_effort"})
    for each in (by_type, by_channel, plane(rings={"delivery_guarantee": "best_effort"})):
        assert "orderin" not in OrderedInboxes(each).valid(numbered).attributes


def test_a_position_counted_by_other_routes_is_removed() -> None:
    (counter,) = counters(plane(), event())
    numbered = event(orderin=f"{counter}/4 gone/normal/0123abcd/2")
    assert OrderedInboxes(plane()).valid(numbered).attributes["orderin"] == f"{counter}/4"
    other = plane(rings={"filter": {"prefix": {"type": RING[:-1]}}})
    assert "orderin" not in OrderedInboxes(other).valid(numbered).attributes
    assert OrderedInboxes(plane()).valid(event()) == event()


def test_a_renamed_route_counts_the_same() -> None:
    rings = contract_document(plane())["routes"]["rings"]
    renamed = with_changes(plane(), {"routes/rings": None, "routes/ringing": rings})
    assert counters(renamed, event()) == counters(plane(), event())


@pytest.mark.parametrize(
    ("desk", "remedy"),
    [
        ({"webhook": {}}, "client library"),
        ({"delivery_guarantee": "best_effort"}, "at_least_once"),
        ({"transport": "carrier"}, "transport: sqs"),
    ],
)
def test_an_ordered_inbox_that_cannot_keep_its_order_is_refused(desk: dict[str, Any], remedy: str) -> None:
    with pytest.raises(ContractError) as caught:
        plane(desk=desk)
    (problem,) = caught.value.problems
    assert problem.path == "participants.desk.inbox.ordering"
    assert remedy in problem.remedy


def test_more_ordered_inboxes_than_fit_an_event_are_refused() -> None:
    desk = contract_document(plane())["participants"]["desk"]
    with pytest.raises(ContractError, match="10 standard inboxes"):
        with_changes(plane(), {f"participants/desk-{number}": desk for number in range(9)})


def test_interest_in_an_ordered_inbox_is_refused() -> None:
    announcement = new_announcement("desk", [{"exact": {"subject": "front"}}])
    contract, refused = with_interest(plane(), [announcement])
    assert contract == plane()
    assert "order" in refused[announcement].message


def test_a_cloud_service_numbers_what_it_puts_and_again_the_same() -> None:
    order = OutboxOrder(plane(), "porter")
    first, second, again = (order.numbered(event(id)) for id in ("1", "2", "1"))
    sent = [stamp_sender(each, Sender(service="porter")) for each in (first, second, again)]
    found = [position_in(each, "desk") for each in sent]
    assert [each[1] for each in found if each] == [1, 2, 1]
    assert {each[0].sender for each in found if each} == {"porter"}
    assert order.numbered(event(type=KNOCK)) == event(type=KNOCK)
    other = OutboxOrder(plane(), "porter").numbered(event("3"))
    assert other.attributes["orderepoch"] != first.attributes["orderepoch"]


def test_an_event_that_is_sent_on_is_numbered_anew() -> None:
    memory = MemoryPlane()
    memory.subscribe("desk", "all", None)
    transport = MemoryTransport(memory, "porter", OutboxOrder(plane(), "porter"))
    received = event(orderin="porter/normal/x/9", orderepoch="old").stamped(senderservice="hall")
    transport.put(sent_again(received), 1.0, durable=True)
    (put,) = memory.events
    assert position_in(put, "desk") is not None
    assert put.attributes["orderepoch"] != "old"
