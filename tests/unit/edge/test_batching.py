"""How long events wait for a batch, what fits into one, and how commits are shared."""

import random

import pytest

from edge.commit import BUSY_PER_S, LINGER_S, GroupCommit
from edge.spool import Delivery, PendingDelivery
from edge.uplink import BatchingDelays, pack_first
from eventplane.batch import unpack
from eventplane.contract import Contract
from eventplane.envelope import Envelope, write_event
from eventplane.limits import MAX_EVENT_BYTES, MAX_PAYLOAD_BYTES
from tests.unit.edge.fakes import CHORE, Device, MakeDevice, contract, event

MINUTE_MS = 60_000


def plane(delay_ms: int = MINUTE_MS) -> Contract:
    return contract(sensor={"outbox": {"batching_delay_ms": delay_ms}})


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
    device.turn(*device.forwarder._wait(device.forwarder._timeout_s()))
    assert device.uplinked() == [["a"]]


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


SENSOR = '{"senderservice":"sensor"}'


@pytest.mark.parametrize(
    ("text", "longest_ms", "expires_ms", "due_ms"),
    [
        (SENSOR, 300_000, None, 61_000),
        (SENSOR, 300_000, 71_000, 36_000),
        (SENSOR, 200, None, 1_200),
        (SENSOR, 0, None, 0),
        ('{"senderservice":"sensor","correlationid":"x"}', 300_000, None, 0),
        ('{"senderservice":"sensor","replyto":"x"}', 300_000, None, 61_000),
        ('{"senderservice":"display","data":{"senderservice":"sensor"}}', 300_000, None, 0),
    ],
    ids=[
        "as long as its outbox says",
        "half its life at most",
        "as long as the device is set to wait",
        "a device that never waits",
        "a request or reply",
        "an event that is only addressed",
        "a sender in the data is none",
    ],
)
def test_when_an_event_is_due(text: str, longest_ms: int, expires_ms: int | None, due_ms: int) -> None:
    pending = PendingDelivery(Delivery("device.outbox", 1, 1), text, expires_ms, 1_000)
    assert BatchingDelays(plane(), longest_ms).due_ms([pending]) == due_ms


def test_the_longest_delay_is_the_lesser_of_contract_and_device() -> None:
    assert (BatchingDelays(plane(), 300_000).longest_s, BatchingDelays(plane(), 0).longest_s) == (60.0, 0.0)


def texts(count: int, noise: int) -> list[str]:
    dice = random.Random(7)
    return [
        write_event({"id": str(n), "source": "/s", "type": "t"}, dice.randbytes(noise).hex()).json
        for n in range(count)
    ]


def ids(payload: bytes) -> list[str]:
    return [each.id for each in unpack(payload) if isinstance(each, Envelope)]


def test_a_batch_that_does_not_compress_is_cut_to_the_limit() -> None:
    waiting = texts(100, 4_000)
    payload, count = pack_first(waiting, MAX_PAYLOAD_BYTES)
    assert len(payload) <= MAX_PAYLOAD_BYTES
    assert 20 < count < 40
    assert ids(payload) == [str(n) for n in range(count)]


def test_a_batch_stays_readable_however_well_it_compresses() -> None:
    waiting = [
        write_event({"id": str(n), "source": "/s", "type": "t"}, "\N{BELL}" * 20_000).json for n in range(99)
    ]
    payload, count = pack_first(waiting, MAX_PAYLOAD_BYTES)
    assert 40 < count < 60
    assert len(ids(payload)) == count


def test_the_largest_event_fits_the_smallest_limit_alone() -> None:
    dice = random.Random(7)
    letters = "".join(chr(dice.randrange(0x20, 0x7F)) for _ in range(MAX_EVENT_BYTES)).replace("\\", "/")
    head = '{"specversion":"1.0","id":"0","source":"/s","type":"t","data":"'
    text = head + letters.replace('"', "'")[: MAX_EVENT_BYTES - len(head) - 2] + '"}'
    assert len(text) == MAX_EVENT_BYTES
    payload, count = pack_first([text, text], MAX_EVENT_BYTES + 1024)
    assert len(payload) <= MAX_EVENT_BYTES + 1024
    assert count >= 1


def turns(
    group: GroupCommit, per_turn: int, every_s: float, seconds: float, start: float = 0.0
) -> list[float]:
    """How long it lingers before each turn while `per_turn` messages come `every_s` seconds."""
    found = []
    for number in range(round(seconds / every_s)):
        group.note(per_turn, start + number * every_s)
        found.append(group.linger_s)
    return found


@pytest.mark.parametrize(
    ("per_turn", "every_s", "linger_s"),
    [(1, 1.5 / BUSY_PER_S, 0.0), (500, 0.1, LINGER_S)],
    ids=["a quiet home", "many messages a turn"],
)
def test_only_a_busy_home_shares_commits(per_turn: int, every_s: float, linger_s: float) -> None:
    assert turns(GroupCommit(), per_turn, every_s, 10.0)[-1] == linger_s


def test_a_busy_home_shares_commits_after_a_moment_and_no_longer_when_it_is_quiet_again() -> None:
    group = GroupCommit()
    found = turns(group, 1, 0.002, 1.0)
    assert found[-1] == LINGER_S
    assert found.index(LINGER_S) < 100
    assert turns(group, 2, 0.1, 1.0, start=1.0)[-1] == 0.0


@pytest.mark.parametrize("per_wait", [1, 5, 20], ids=["receipts", "requests", "a window of messages"])
def test_senders_that_wait_for_an_answer_are_seldom_held_up(per_wait: int) -> None:
    group = GroupCommit()
    now, held_up, sent = 0.0, 0.0, 0
    while now < 60.0:
        now += 0.003 + group.linger_s
        held_up += group.linger_s
        group.note(per_wait, now)
        sent += per_wait
    assert 0.0 < held_up < 1.0
    assert sent > 0.95 * per_wait * 60.0 / 0.003


@pytest.mark.parametrize("per_s", [1.2 * BUSY_PER_S, 500.0, 5_000.0])
def test_senders_that_wait_for_nothing_share_commits_for_good(per_s: float) -> None:
    group = GroupCommit()
    now, sent, short = 0.0, 0, 0
    while now < 60.0:
        now += 1 / per_s + group.linger_s
        come = int(now * per_s) - sent
        sent += come
        group.note(come, now)
        short += group.linger_s == 0.0 and now > 1.0
    assert short == 0


def test_what_came_while_it_held_off_is_not_counted_afterwards() -> None:
    group, now = GroupCommit(), 0.0
    for _ in range(100):
        now += 0.003 + group.linger_s
        group.note(5, now)
    assert group.linger_s == 0.0
    assert set(turns(group, 1, 2 / BUSY_PER_S, 60.0, start=now)) == {0.0}
