"""A device that may keep few deliveries never keeps more, and drops the oldest of the least urgent."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.delivery_queues import DeliveryCursor
from eventplane.contract import WhenFull
from eventplane.device_reports import is_irreplaceable
from eventplane.envelope import parse_event
from eventplane.reasons import Outcome
from eventplane.receipts import SPOOL_FULL, Receipt, digest, write_receipts
from eventplane_mqtt.mailbox import LinkName
from tests.examples import examples
from tests.scratch import SCRATCH
from tests.unit.edge.fakes import ALARM, CHORE, READING, Device, contract, event

pytestmark = pytest.mark.source("N4", "C6")

CAPACITY = 100
RANKS = {ALARM: 0, READING: 1, CHORE: 2}

# Some go to one inbox more, so that an event has one, two or three deliveries.
arrive = st.tuples(
    st.just("arrive"),
    st.lists(st.tuples(st.sampled_from([READING, ALARM, CHORE]), st.booleans()), min_size=1, max_size=40),
)
other = st.tuples(st.sampled_from(["send", "call", "crash"]), st.just([]))


class CountedDevice:
    """A device with room for CAPACITY deliveries; `kept` has what was receipted, by id, with its rank."""

    def __init__(self, path: Path, when_full: WhenFull) -> None:
        plane = contract(sensor={"outbox": {"when_full": when_full.value}})
        self.device = Device(path, capacity_deliveries=CAPACITY, plane=plane)
        self.device.connect(LinkName.LOCAL)
        self.kept: dict[str, int] = {}
        self.number = 0

    def arrive(self, kinds: list[tuple[str, bool]]) -> None:
        events = [
            event(f"e{self.number + n:05}", kind, **({"subject": "show"} if shown else {}))
            for n, (kind, shown) in enumerate(kinds)
        ]
        self.number += len(events)
        before = self.waiting()
        self.device.send(*events)
        answers = {each.digest: each.refused for each in self.device.receipts()}
        for each in events:
            refused = answers[digest(each.json.encode())]
            assert refused in (None, SPOOL_FULL)
            if refused is None:
                self.kept[each.id] = RANKS[each.type]
        self.check_dropped(before)

    def check_dropped(self, before: dict[str, int]) -> None:
        """What waited and is gone was dropped: whatever is less urgent is gone too, and whatever is older."""
        after = self.waiting()
        gone = {id for id in before if id not in after}
        for id in gone:
            assert before[id] > 0  # never an alarm
            left = [each for each in before if each in after]
            assert not [each for each in left if before[each] > before[id]]
            assert not [each for each in left if before[each] == before[id] and each < id]
        dropped = [each for each in self.device.spool.loss_reports() if each.outcome is Outcome.DROPPED]
        assert {each.reason for each in dropped} <= {SPOOL_FULL}

    def waiting(self) -> dict[str, int]:
        """The events that wait for the cloud, with their ranks; nothing is under way."""
        found = {}
        for rank in (0, 1, 2):
            for each in DeliveryCursor(self.device.spool, "device.outbox", rank).unsent():
                if not is_irreplaceable(each.json) and (id := parse_event(each.json).id) in self.kept:
                    found[id] = rank
        return found

    def happen(self, what: str) -> None:
        device = self.device
        match what:
            case "send":
                device.connect(LinkName.CLOUD)
                device.turn(after=1.0)  # longer than the uplink gathers a batch
                device.acknowledge_all()
                assert not self.waiting()
                device.disconnect(LinkName.CLOUD)
            case "call":
                receipts = [Receipt(digest(each)) for each in device.delivered("call")]
                device.turn(device.receipt_of("call", write_receipts(receipts)))
            case "crash":
                device.restart(connected=False)
                device.connect(LinkName.LOCAL)

    def check_bound(self) -> None:
        spool = self.device.spool
        assert spool.space.used_deliveries == sum(spool.backlog().values())
        assert spool.space.used_deliveries <= CAPACITY


@given(st.sampled_from(WhenFull), st.lists(st.one_of(arrive, arrive, other), max_size=12))
@settings(max_examples=examples(60))
def test_waiting_has_room(when_full: WhenFull, steps: list[tuple[str, list[tuple[str, bool]]]]) -> None:
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
        it = CountedDevice(Path(folder) / "spool.db", when_full)
        for what, kinds in steps:
            if what == "arrive":
                it.arrive(kinds)
            else:
                it.happen(what)
            it.check_bound()
        it.device.crash()
