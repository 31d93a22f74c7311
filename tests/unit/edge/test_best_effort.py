from __future__ import annotations

from pathlib import Path

from edge.best_effort import MOST_CHARACTERS, MOST_EVENTS, OFFLINE, OVERFLOW, BestEffortLane, Fleeting
from edge.messages import LinkName
from edge.reports import NotStored
from eventplane.delivery import Outcome
from tests.unit.edge.fakes import ALARM, READING, Device, contract, event

LOCAL, CLOUD = LinkName.LOCAL, LinkName.CLOUD
BEST_EFFORT = {"delivery_guarantee": "best_effort"}


class Losses:
    def __init__(self) -> None:
        self.all: list[tuple[str, str]] = []

    def __call__(self, event: Fleeting, reason: str) -> None:
        self.all.append((event.json, reason))


def test_it_keeps_the_newest_within_its_bounds() -> None:
    losses = Losses()
    lane = BestEffortLane("display.inbox", losses)
    for number in range(MOST_EVENTS + 2):
        lane.put(Fleeting("display.inbox", READING, str(number)))
    assert losses.all == [("0", OVERFLOW), ("1", OVERFLOW)]
    assert [each.json for each in lane.peek(2)] == ["2", "3"]
    lane.take()
    assert [each.json for each in lane.peek(1)] == ["3"]


def test_its_text_is_bounded_as_well() -> None:
    losses = Losses()
    lane = BestEffortLane("display.inbox", losses)
    for letter in "abc":
        lane.put(Fleeting("display.inbox", READING, letter * (MOST_CHARACTERS // 2)))
    assert [(json[0], reason) for json, reason in losses.all] == [("a", OVERFLOW)]


def test_what_waits_goes_with_the_line() -> None:
    losses = Losses()
    lane = BestEffortLane("display.inbox", losses)
    lane.put(Fleeting("display.inbox", READING, "e"))
    lane.rewind()
    assert losses.all == [("e", OFFLINE)]
    assert lane.peek(1) == []


def device_of(path: Path, **options: object) -> Device:
    device = Device(path / "spool.db", plane=contract(sensor={"outbox": BEST_EFFORT}), **options)  # type: ignore[arg-type]
    device.connect()
    return device


def test_it_is_sent_while_the_line_stands_and_never_stored(tmp_path: Path) -> None:
    device = device_of(tmp_path)
    before = device.spool.next_sequence
    sent = event("e", subject="show")
    device.turn(device.from_service(sent))
    device.turn(after=1.0)
    assert device.delivered("display") == [sent.json.encode()]
    assert device.uplinked() == [["e"]]
    assert device.spool.next_sequence == before
    assert [each.refused for each in device.receipts()] == [None]
    device.acknowledge_all()
    device.turn(*(device.puback(mid, LOCAL) for mid, _, _ in device.local.last.published))
    assert not any(device.spool.backlog().values())
    device.crash()


def test_offline_it_is_counted_and_gone(tmp_path: Path) -> None:
    device = device_of(tmp_path)
    device.disconnect(CLOUD)
    device.turn(device.from_service(event("e")), device.from_service(event("fire", ALARM)))
    lost = device.forwarder.counts.not_stored
    assert lost == {
        NotStored("device.outbox", READING, OFFLINE): 1,
        NotStored("device.outbox", ALARM, OFFLINE): 1,
    }
    # The health endpoint and the heartbeat tell it, too.
    assert device.forwarder.counts.discards == {(Outcome.DROPPED, OFFLINE): 2}
    assert len(device.delivered("call")) == 1
    device.connect(CLOUD)
    device.turn(after=1.0)
    assert "e" not in [id for batch in device.uplinked() for id in batch]
    device.crash()


def test_a_repetition_is_known(tmp_path: Path) -> None:
    device = device_of(tmp_path)
    device.turn(device.from_service(event("e")), device.from_service(event("e")))
    device.turn(after=1.0)
    assert device.uplinked() == [["e"]]
    device.crash()


def test_what_is_promised_goes_first(tmp_path: Path) -> None:
    device = device_of(tmp_path, window=2, batch_events=2)
    device.turn(*(device.from_service(event(f"b{n}")) for n in range(3)))
    # The call service's outbox promises delivery.
    device.turn(*(device.from_service(event(f"p{n}"), service="call") for n in range(4)))
    device.acknowledge_all()
    device.turn(after=1.0)
    sent = [id for batch in device.uplinked() for id in batch]
    first_wave = sent.index("p0")
    assert first_wave <= 2  # what was under way already
    assert sent[first_wave : first_wave + 4] == ["p0", "p1", "p2", "p3"]
    assert sorted(sent) == ["b0", "b1", "b2", "p0", "p1", "p2", "p3"]
    device.crash()


def test_what_waits_for_a_slow_service_is_not_lost_with_the_patience(tmp_path: Path) -> None:
    device = device_of(tmp_path)
    device.turn(*(device.from_service(event(f"e{n}", subject="show")) for n in range(5)))
    assert len(device.delivered("display")) == 3
    device.turn(after=10.0)
    assert len(device.delivered("display")) == 5
    assert not device.forwarder.counts.not_stored
    device.crash()
