"""The spool against a model, with the file reopened, or left as a crash leaves it, at any time."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from edge.lane import Lane
from edge.spool import Arrival, Delivery, Spool, read_backlog

DESTINATIONS = ("device.outbox", "call.inbox", "display.inbox")
RANKS = (0, 1, 2)

some_events = st.lists(
    st.tuples(st.sampled_from(RANKS), st.sets(st.sampled_from(DESTINATIONS), min_size=1)), max_size=5
)


class SpoolMachine(RuleBasedStateMachine):
    """`pending` is what was committed and not ended; every lane must hand out just that, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.path = self.directory / "spool.db"
        self.spool = Spool(self.path)
        self.epoch = self.spool.epoch
        self.pending: dict[Delivery, str] = {}
        self.under_way: set[Delivery] = set()
        self.used = 0
        self._open_lanes()

    def teardown(self) -> None:
        self.spool.close()
        shutil.rmtree(self.directory)

    @rule(events=some_events, data=st.data())
    def commit(self, events: list[tuple[int, set[str]]], data: st.DataObject) -> None:
        """New events, and some of what is under way ends, in one transaction."""
        done = data.draw(st.sets(st.sampled_from(sorted(self.under_way)))) if self.under_way else set()
        arrivals = self._arrivals(events)
        self.spool.commit(arrivals, done, life_ms=0)
        self.used += len(arrivals)
        for each in arrivals:
            for destination in each.destinations:
                self.pending[Delivery(destination, each.rank, each.sequence)] = each.json
        for delivery in done:
            del self.pending[delivery]
        self.under_way -= done

    @rule(events=some_events)
    def crash_before_the_commit(self, events: list[tuple[int, set[str]]]) -> None:
        """The process dies with a transaction open: another one finds the files as they are."""
        self.spool._db.execute("BEGIN IMMEDIATE")
        self.spool._insert(self._arrivals(events), 0)
        crashed = self.directory / f"after-{self.used}"
        shutil.rmtree(crashed, ignore_errors=True)
        crashed.mkdir()
        for file in self.directory.glob("spool.db*"):
            shutil.copy(file, crashed)
        self.spool._db.execute("ROLLBACK")
        self.spool.close()
        for file in self.directory.glob("spool.db*"):
            file.unlink()
        for file in crashed.iterdir():
            shutil.copy(file, self.directory)
        self.reopen()

    @rule()
    def reopen(self) -> None:
        self.spool.close()
        self.spool = Spool(self.path)
        self._open_lanes()

    @rule(key=st.sampled_from([(d, r) for d in DESTINATIONS for r in RANKS]), count=st.integers(1, 4))
    def send(self, key: tuple[str, int], count: int) -> None:
        """The next of a lane, in order, are those of the model that are not under way."""
        lane = self.lanes[key]
        found = lane.peek(count)
        waiting = sorted(d for d in self.pending if d[:2] == key and d not in self.under_way)
        assert [each.delivery for each in found] == waiting[:count]
        assert [each.json for each in found] == [self.pending[each.delivery] for each in found]
        for each in found:
            lane.take()
            self.under_way.add(each.delivery)

    @rule(destination=st.sampled_from(DESTINATIONS))
    def disconnect(self, destination: str) -> None:
        for rank in RANKS:
            self.lanes[destination, rank].rewind()
        self.under_way = {each for each in self.under_way if each.destination != destination}

    @invariant()
    def nothing_acknowledged_is_missing(self) -> None:
        counts = {name: sum(each.destination == name for each in self.pending) for name in DESTINATIONS}
        assert {name: self.spool.backlog().get(name, 0) for name in DESTINATIONS} == counts
        assert read_backlog(self.path) == self.spool.backlog()

    @invariant()
    def an_event_stays_only_while_it_is_needed(self) -> None:
        (kept,) = self.spool._db.execute("SELECT COUNT(*) FROM event").fetchone()
        assert kept == len({each.sequence for each in self.pending})

    @invariant()
    def numbers_go_on(self) -> None:
        assert self.spool.next_sequence == self.used + 1
        assert self.spool.epoch == self.epoch

    def _arrivals(self, events: list[tuple[int, set[str]]]) -> list[Arrival]:
        first = self.spool.next_sequence
        return [
            Arrival(first + n, rank, f'{{"n":{first + n}}}', dict.fromkeys(sorted(destinations)), bytes(16))
            for n, (rank, destinations) in enumerate(events)
        ]

    def _open_lanes(self) -> None:
        self.lanes = {(d, r): Lane(self.spool, d, r) for d in DESTINATIONS for r in RANKS}
        self.under_way = set()


SpoolMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestSpool = SpoolMachine.TestCase
