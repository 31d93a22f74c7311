"""Events wait in the spool for company, as their outboxes say; seen through the whole forwarder."""

from __future__ import annotations

import pytest

from edge.packing import BatchingDelays
from edge.spool import Delivery, PendingDelivery
from eventplane.contract import Contract
from tests.unit.edge.fakes import ALARM, CHORE, Device, MakeDevice, contract, event

MINUTE_MS = 60_000


def plane(delay_ms: int = MINUTE_MS, **outbox: object) -> Contract:
    return contract(sensor={"outbox": {"batching_delay_ms": delay_ms, **outbox}})


@pytest.fixture
def device(make: MakeDevice) -> Device:
    return make(plane=plane())


def test_events_wait_for_as_long_as_their_outbox_says_and_go_in_one_frame(device: Device) -> None:
    device.send(event("a"))
    device.send(event("b"), after=59.0)
    assert device.uplinked() == []
    device.turn(after=1.01)
    assert device.uplinked() == [["a", "b"]]


def test_the_loop_wakes_up_for_it(device: Device) -> None:
    device.send(event("a"))
    device.turn(after=0.3)
    assert 59.0 < (device.forwarder._timeout_s() or 0.0) < 60.0


def test_an_urgent_event_waits_for_none_of_them(device: Device) -> None:
    device.send(event("a"), event("fire", ALARM))
    assert device.uplinked() == [["fire"]]


def test_the_earliest_event_due_takes_the_others_along(device: Device) -> None:
    device.turn(device.from_service(event("a"), "display"), after=0.0)
    device.send(event("b"), event("c", CHORE))
    device.turn(after=0.3)
    (frame,) = device.uplinked()
    assert set(frame) == {"a", "b", "c"}


def test_a_full_frame_does_not_wait(device: Device) -> None:
    device.send(*(event(f"e{n}") for n in range(5)))
    assert device.uplinked() == [["e0", "e1", "e2", "e3", "e4"]]


def test_nothing_waits_in_a_spool_that_is_half_full(make: MakeDevice) -> None:
    device = make(plane=plane(), capacity_deliveries=10, batch_events=100)
    device.send(*(event(f"e{n}") for n in range(4)))
    assert device.uplinked() == []
    device.send(event("e4"))
    device.turn(after=0.3)
    assert device.uplinked() == [["e0", "e1", "e2", "e3", "e4"]]


def test_the_wait_goes_on_after_a_power_cut_and_does_not_begin_anew(device: Device) -> None:
    device.send(event("a"))
    device.turn(after=40.0)
    device.restart()
    device.turn(after=10.0)
    assert device.uplinked() == []
    device.turn(after=10.01)
    assert device.uplinked() == [["a"]]


def test_an_event_that_expires_waits_for_half_its_life_at_most(make: MakeDevice) -> None:
    device = make(plane=plane(expiry_s=70))
    device.send(event("a"))
    device.turn(after=34.9)
    assert device.uplinked() == []
    device.turn(after=0.11)
    assert device.uplinked() == [["a"]]


def test_a_new_contract_changes_the_wait_of_what_is_there(device: Device) -> None:
    device.send(event("a"))
    device.turn(after=1.0)
    device.forwarder.uplink.follow(plane(0))
    device.turn(after=0.01)
    assert device.uplinked() == [["a"]]


def test_the_delay_of_an_event_is_looked_up_once(make: MakeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    device = make(plane=plane(), batch_events=50)
    looked_up: list[int] = []
    due_ms = BatchingDelays._due_ms

    def count(self: BatchingDelays, pending: PendingDelivery) -> int:
        looked_up.append(pending.delivery.sequence)
        return due_ms(self, pending)

    monkeypatch.setattr(BatchingDelays, "_due_ms", count)
    for n in range(20):
        device.send(event(f"e{n}"), after=0.5)
    device.turn(after=0.5)
    assert device.uplinked() == []
    assert len(looked_up) == len(set(looked_up)) == 20
    device.crash()


@pytest.mark.parametrize("member", ["correlationid", "replyto"])
def test_requests_and_replies_do_not_wait(member: str) -> None:
    delays = BatchingDelays(plane(), 300_000)
    front = '{"senderservice":"sensor",'
    waiting = PendingDelivery(Delivery("device.outbox", 1, 1), front + f'"{member}":"x"}}', None, 1_000)
    assert delays.due_ms([waiting]) == (0 if member == "correlationid" else 61_000)


def test_what_an_event_says_in_its_data_is_not_its_sender() -> None:
    delays = BatchingDelays(plane(), 300_000)
    text = '{"senderservice":"display","data":{"senderservice":"sensor"}}'
    assert delays.due_ms([PendingDelivery(Delivery("device.outbox", 1, 1), text, None, 1_000)]) == 0


def test_a_device_may_be_set_to_wait_less() -> None:
    waiting = PendingDelivery(Delivery("device.outbox", 1, 1), '{"senderservice":"sensor"}', None, 1_000)
    assert BatchingDelays(plane(), 200).due_ms([waiting]) == 1_200
    assert BatchingDelays(plane(), 0).due_ms([waiting]) == 0
    assert (BatchingDelays(plane(), 300_000).longest_s, BatchingDelays(plane(), 0).longest_s) == (60.0, 0.0)
