"""Whatever arrives, whatever breaks or is refused: nothing is lost, first deliveries keep the order of each
source, and the loop never spins.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from eventplane.envelope import Envelope, parse_event, write_event
from eventplane.receipts import Receipt, digest, write_receipts
from eventplane.topics import local_topic
from eventplane_mqtt.mailbox import LinkName
from tests.examples import examples
from tests.scratch import SCRATCH
from tests.unit.edge.fakes import ALARM, CHORE, READING, Device, ids, ordered

LOCAL, CLOUD = LinkName.LOCAL, LinkName.CLOUD
WINDOW = 4
RANKS = {ALARM: 0, READING: 1, CHORE: 2}

arrive = st.tuples(
    st.just("arrive"), st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(list(RANKS))), max_size=6)
)
happen = st.sampled_from(["cut cloud", "cut local", "cloud", "local", "crash", "wait", "idle"]).map(
    lambda it: (it, [])
)
FAILURES = ("quota exceeded", "payload format invalid", "not authorized", "unspecified error")
failures = st.sampled_from((*(None,) * 8, *FAILURES))
puback = st.tuples(st.just("puback"), st.lists(st.tuples(st.integers(0, 12), failures), max_size=4))
receipt = st.tuples(st.just("receipt"), st.lists(st.integers(0, 12), max_size=4))


class Home:
    """A device to which things happen; `sent` has the ids by source and type in the order of sending."""

    def __init__(self, path: Path) -> None:
        self.device = Device(path, window=WINDOW, batch_events=3, plane=ordered())
        self.sent: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        self.taken: set[str] = set()
        self._count = 0

    def arrive(self, events: list[tuple[str, str]]) -> None:
        if not self.device.local_link.up:
            return
        messages = []
        for source, kind in events:
            self._count += 1
            sent = write_event({"id": f"{self._count}", "source": f"/{source}", "type": kind}, {})
            self.sent[sent.source, kind].append(sent.id)
            messages.append(self.device.from_service(sent))
        self.device.turn(*messages)

    def happen(self, what: str) -> None:
        device = self.device
        if what.startswith("cut"):
            device.disconnect(CLOUD if what == "cut cloud" else LOCAL)
        elif what == "wait":
            device.turn(after=31.0)  # longer than any patience: what is unconfirmed is sent again
        elif what == "idle":
            device.turn(after=301.0)  # until a ping is due
        elif what == "crash":
            device.restart(connected=False)
        else:
            link = device.cloud_link if what == "cloud" else device.local_link
            if not link.up:
                device.turn(after=61.0)
                device.turn(after=5.0)
                device.connect(CLOUD if what == "cloud" else LOCAL)
        device.turn(after=0.5)

    def puback(self, answers: list[tuple[int, str | None]]) -> None:
        """In any order, also for what was never published."""
        if self.device.cloud_link.up:
            published = {mid: payload for mid, _, payload in self.device.cloud.last.published}
            for mid, failure in answers:
                if failure is None:
                    self.taken |= set(ids(published.get(mid, b"[]")))
            self.device.turn(*(self.device.puback(mid, failure=failure) for mid, failure in answers))

    def receipt(self, numbers: list[int]) -> None:
        delivered = self.device.delivered("call")
        receipts = [Receipt(digest(delivered[each])) for each in numbers if each < len(delivered)]
        if receipts and self.device.local_link.up:
            self.device.turn(self.device.receipt_of("call", write_receipts(receipts)))

    def drain(self) -> None:
        """Heal everything and wait until nothing is left."""
        for _ in range(400):
            if not any(self.device.spool.backlog().values()):
                return
            self.happen("cloud")
            self.happen("local")
            self.puback([(mid, None) for mid, *_ in self.device.cloud.last.published])
            self.receipt(list(range(len(self.device.delivered("call")))))
        raise AssertionError(f"still waiting: {self.device.spool.backlog()}")

    def check_loop(self) -> None:
        """It sleeps: what became due in a turn, such as a report of a loss, is done by the next."""
        if self.device.forwarder._timeout_s() == 0.0:
            self.device.turn()
        assert self.device.forwarder._timeout_s() != 0.0
        assert self.device.forwarder.uplink.unacknowledged <= WINDOW

    def called(self) -> list[Envelope]:
        topic = local_topic("call", "inbox")
        return [
            parse_event(payload)
            for wire in self.device.local.all
            for _, to, payload in wire.published
            if to == topic
        ]


def firsts(events: list[Envelope]) -> dict[tuple[str, str], list[str]]:
    """The ids by source and type, each at its first delivery."""
    found: defaultdict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for each in events:
        if each.source in ("/a", "/b"):
            found[each.source, each.type].setdefault(each.id)
    return {key: list(ids) for key, ids in found.items()}


def assert_numbered(events: list[Envelope]) -> None:
    """Each has one position in the ordered inbox, and the numbers are those of the order of sending."""
    numbers: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for each in events:
        counter, _, number = str(each.attributes["orderin"]).rpartition("/")
        assert numbers[counter].setdefault(f"{each.source} {each.id}", int(number)) == int(number)
    for counted in numbers.values():
        assert sorted(counted.values()) == list(range(1, len(counted) + 1))
        assert list(counted.values()) == sorted(counted.values())


@pytest.mark.source("P8", "P17", "C2")
@given(st.lists(st.one_of(arrive, arrive, happen, puback, receipt), max_size=30))
@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example([("arrive", [("a", ALARM)]), *(2 * [("puback", [(1, "payload format invalid")]), ("wait", [])])])
def test_first_deliveries_of_a_source_and_priority_are_in_order_and_complete(
    story: list[tuple[str, list[object]]],
) -> None:
    with tempfile.TemporaryDirectory(dir=SCRATCH) as directory:
        home = Home(Path(directory) / "spool.db")
        home.device.connect()
        for what, details in story:
            if what in ("arrive", "puback", "receipt"):
                getattr(home, what)(details)
            else:
                home.happen(what)
            home.check_loop()
        home.drain()
        sent = {id for ids in home.sent.values() for id in ids}
        assert len(sent - home.taken) <= len(home.device.letters())
        assert firsts(home.device.published()) == dict(home.sent)
        assert_numbered(home.device.published())
        alarms = {key: ids for key, ids in home.sent.items() if key[1] == ALARM}
        assert firsts(home.called()) == alarms
        home.device.crash()


@given(st.integers(1, 40), st.integers(1, 6))
@settings(max_examples=examples(20), deadline=None)
def test_urgent_overtakes_everything_that_waits(waiting: int, urgent: int) -> None:
    with tempfile.TemporaryDirectory(dir=SCRATCH) as directory:
        home = Home(Path(directory) / "spool.db")
        home.device.connect(LOCAL)
        home.arrive([("a", READING if number % 2 else CHORE) for number in range(waiting)])
        home.arrive([("b", ALARM)] * urgent)
        home.happen("cloud")
        home.drain()
        kinds = [RANKS[each.type] for each in home.device.published() if each.source in ("/a", "/b")]
        assert kinds == sorted(kinds)
        home.device.crash()
