"""The spool against a model, with the file reopened, or left as a crash leaves it, at any time."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from edge.spool import Delivery, DeviceState, Discard, Manifest, StoredEvent
from edge.spool.database import TableTotals
from edge.spool.recovery import read_backlog
from edge.spool.store import Spool
from edge.system import SYSTEM
from eventplane.device_reports import event_digest
from eventplane.reasons import Outcome
from tests.examples import examples
from tests.scratch import SCRATCH
from tests.unit.edge.builders import device_state, key, waiting

pytestmark = pytest.mark.source("C-W3")

DESTINATIONS = ("device.outbox", "call.inbox", "display.inbox")
RANKS = (0, 1, 2)

some_events = st.lists(
    st.tuples(st.sampled_from(RANKS), st.sets(st.sampled_from(DESTINATIONS), min_size=1)), max_size=5
)


KINDS, KEYS = ("state", "command"), ("a/b/c", "a/b/d")
some_states = st.lists(
    st.builds(
        device_state,
        st.sampled_from(KEYS),
        st.integers(0, 10**18 - 1),
        st.text(st.characters(exclude_categories=["Cs"])),
        kind=st.sampled_from(KINDS),
        deleted=st.booleans(),
        sequence=st.integers(-(1 << 40), 1 << 40),
    ),
    max_size=3,
)


def digest_of(text: bytes) -> int:
    return int.from_bytes(event_digest(text), "big")


class SpoolMachine(RuleBasedStateMachine):
    """`pending` is what was committed and not ended; each queue has just that, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(dir=SCRATCH))
        self.path = self.directory / "spool.db"
        self.spool = Spool(self.path, SYSTEM)
        self.epoch = self.spool.epoch
        self.pending: dict[Delivery, str] = {}
        self.stated: dict[str, dict[int, bytes]] = {}
        self.discarded: dict[tuple[str, str], set[int]] = {}
        self.held: dict[tuple[str, str], DeviceState] = {}
        self.used = 0

    def teardown(self) -> None:
        self.spool.close()
        shutil.rmtree(self.directory)

    @rule(events=some_events, states=some_states, data=st.data())
    def commit(
        self, events: list[tuple[int, set[str]]], states: list[DeviceState], data: st.DataObject
    ) -> None:
        """New events and states, some of what is pending ends, reports are closed, in one transaction."""
        some = st.sets(st.sampled_from(sorted(self.pending)), max_size=3) if self.pending else st.just(set())
        done, dropped = data.draw(some), data.draw(some)
        close_manifests, close_loss_reports = data.draw(st.booleans()), data.draw(st.booleans())
        arrivals = self._arrivals(events)
        self.spool.commit(
            arrivals,
            done,
            [Discard(each, Outcome.DROPPED, f"r{each.rank}") for each in dropped],
            uptime_ms=0,
            states=states,
            close_manifests=close_manifests,
            close_loss_reports=close_loss_reports,
        )
        self.held |= {(each.kind, each.key): each for each in states}
        if close_manifests:
            self.stated.clear()
        if close_loss_reports:
            self.discarded.clear()
        self.used += len(arrivals)
        for each in arrivals:
            for destination in each.destinations:
                self.pending[Delivery(destination, each.rank, each.sequence)] = each.json
                self.stated.setdefault(destination, {})[each.sequence] = each.json.encode()
        for delivery in dropped - done:
            kind = (delivery.destination, f"r{delivery.rank}")
            self.discarded.setdefault(kind, set()).add(delivery.sequence)
        for delivery in done | dropped:
            del self.pending[delivery]

    @rule(events=some_events, states=some_states)
    def crash_before_the_commit(self, events: list[tuple[int, set[str]]], states: list[DeviceState]) -> None:
        """The process dies with a transaction open: another one finds the files as they are."""
        self.spool._db.execute("BEGIN IMMEDIATE")
        self.spool._insert(self._arrivals(events), 0, TableTotals())
        self.spool._states.put(states, TableTotals())
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
        self.spool = Spool(self.path, SYSTEM)

    @invariant()
    def nothing_acknowledged_is_missing(self) -> None:
        counts = {name: sum(each.destination == name for each in self.pending) for name in DESTINATIONS}
        assert {name: self.spool.backlog().get(name, 0) for name in DESTINATIONS} == counts
        assert read_backlog(self.path) == self.spool.backlog()

    @invariant()
    def each_queue_has_what_is_pending_in_order(self) -> None:
        for name in DESTINATIONS:
            for rank in RANKS:
                texts = [text for each, text in sorted(self.pending.items()) if each[:2] == (name, rank)]
                assert waiting(self.spool, name, rank, at_once=2) == texts

    @invariant()
    def of_each_key_the_last_is_held(self) -> None:
        for kind in KINDS:
            for key_ in KEYS:
                assert self.spool.device_state(kind, key_) == self.held.get((kind, key_))
        assert self.spool.state_bytes() == sum(len(each.json.encode()) for each in self.held.values())
        assert self.spool.state_count() == sum(each.is_live for each in self.held.values())

    @invariant()
    def an_event_stays_only_while_it_is_needed(self) -> None:
        batches = self.spool._db.execute("SELECT last FROM batch UNION ALL SELECT last FROM delivery")
        if not self.pending:
            assert batches.fetchall() == []

    @invariant()
    def reports_tell_what_happened_since_they_were_closed(self) -> None:
        expected = {
            Manifest(name, min(texts), max(texts), len(texts), sum(map(digest_of, texts.values())) % 2**128)
            for name, texts in self.stated.items()
        }
        assert {*self.spool.manifests()} == expected
        for name in DESTINATIONS:
            numbers = [each.sequence for each in self.pending if each.destination == name]
            assert self.spool.first_pending(name, 2) == sorted(numbers)[:2]
        told = {
            (each.destination, each.reason): {
                n for first, last in each.ranges for n in range(first, last + 1)
            }
            for each in self.spool.loss_reports()
        }
        assert told == self.discarded
        assert all(
            each.count == len(self.discarded[each.destination, each.reason])
            for each in self.spool.loss_reports()
        )

    @invariant()
    def numbers_go_on(self) -> None:
        assert self.spool.next_sequence == self.used + 1
        assert self.spool.epoch == self.epoch

    def _arrivals(self, events: list[tuple[int, set[str]]]) -> list[StoredEvent]:
        first = self.spool.next_sequence
        return [
            StoredEvent(
                first + n, rank, f'{{"n":{first + n}}}', dict.fromkeys(sorted(destinations)), key(first + n)
            )
            for n, (rank, destinations) in enumerate(events)
        ]


SpoolMachine.TestCase.settings = settings(max_examples=examples(40), stateful_step_count=30, deadline=None)
TestSpool = SpoolMachine.TestCase
