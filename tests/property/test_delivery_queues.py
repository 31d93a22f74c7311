"""The queues of a destination hand out what is pending, each delivery once, in order, read or appended."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from edge.counts import Counts
from edge.delivery_queues import _MOST_APPENDED, DeliveryQueues
from edge.spool import Delivery
from edge.spool.store import Spool
from edge.system import SYSTEM, Uptime
from eventplane.contract import Priority
from eventplane.reasons import Outcome
from tests.examples import examples
from tests.scratch import SCRATCH
from tests.unit.edge.builders import arrival

DESTINATIONS = ("device.outbox", "call.inbox")
RANKS = [each.rank for each in Priority]

some_events = st.lists(
    st.tuples(
        st.sampled_from(RANKS),
        st.dictionaries(st.sampled_from(DESTINATIONS), st.none() | st.integers(1, 50), min_size=1),
    ),
    min_size=1,
    max_size=4,
)


class QueuesMachine(RuleBasedStateMachine):
    """`pending` is what was committed and has not ended, with its expiry; `in_flight` what was taken."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(dir=SCRATCH))
        self.life = 0
        system = SYSTEM._replace(uptime=lambda: Uptime("boot", self.life))
        self.spool = Spool(self.directory / "spool.db", system)
        self.queues = DeliveryQueues(self.spool, Counts())
        self.by_rank = {each: self.queues.open(each) for each in DESTINATIONS}
        self.pending: dict[Delivery, int | None] = {}
        self.in_flight: set[Delivery] = set()

    def teardown(self) -> None:
        self.spool.close()
        shutil.rmtree(self.directory)

    @rule(events=some_events, repeated=st.sampled_from([1, 1, 1, _MOST_APPENDED]), told=st.booleans())
    def commit(self, events: list[tuple[int, dict[str, int | None]]], repeated: int, told: bool) -> None:
        """Store events, with or without telling the queues; also more than they append."""
        first = self.spool.next_sequence
        life = self.spool.clock()
        arrivals = [
            arrival(
                first + n,
                rank,
                {to: None if lives is None else life + lives for to, lives in expiries.items()},
                f'{{"n":{first + n}}}',
            )
            for n, (rank, expiries) in enumerate(events * repeated)
        ]
        self.spool.commit(arrivals, uptime_ms=life)
        if told:
            self.queues.stored(arrivals, life)
        for each in arrivals:
            for to, expires_ms in each.destinations.items():
                self.pending[Delivery(to, each.rank, each.sequence)] = expires_ms

    @rule(count=st.integers(1, 600))
    def send(self, count: int) -> None:
        """Take what comes next of every queue, which is what is pending, not in flight and not over."""
        for to, by_rank in self.by_rank.items():
            for rank in RANKS:
                found = by_rank[rank].peek(count)
                next_ = sorted(
                    each
                    for each in self.pending.keys() - self.in_flight
                    if each[:2] == (to, rank) and not self._is_over(each)
                )
                assert [each.delivery for each in found] == next_[: len(found)]
                assert found or not next_ or by_rank[rank].more
                assert [each.json for each in found] == [
                    f'{{"n":{each.delivery.sequence}}}' for each in found
                ]
                assert [each.expires_ms for each in found] == [self.pending[each.delivery] for each in found]
                by_rank[rank].take(len(found))
                self.in_flight |= {each.delivery for each in found}

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """Some deliveries were made; what is over ends with them."""
        done = data.draw(st.sets(st.sampled_from(sorted(self.in_flight)))) if self.in_flight else set()
        discards = list(self.queues.discards.values())
        self.spool.commit([], done, discards, uptime_ms=self.spool.clock())
        self.queues.discards.clear()
        for delivery in done | {each.delivery for each in discards}:
            self.pending.pop(delivery, None)
            self.in_flight.discard(delivery)

    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        """Some deliveries end without being sent."""
        waiting = sorted(self.pending.keys() - self.in_flight - self.queues.discards.keys())
        some = data.draw(st.sets(st.sampled_from(waiting), max_size=3)) if waiting else set()
        for each in some:
            self.queues.discard(each, Outcome.DROPPED, "test")
        self.queues.withdraw(some)

    @rule(to=st.sampled_from(DESTINATIONS))
    def disconnect(self, to: str) -> None:
        for queue in self.by_rank[to].values():
            queue.rewind()
        self.in_flight = {each for each in self.in_flight if each.destination != to}

    @rule(ms=st.integers(1, 40))
    def live(self, ms: int) -> None:
        self.life += ms

    @invariant()
    def what_is_empty_has_nothing_to_send(self) -> None:
        for to, by_rank in self.by_rank.items():
            for rank in RANKS:
                left = [each for each in self.pending.keys() - self.in_flight if each[:2] == (to, rank)]
                assert not by_rank[rank].empty or all(map(self._is_over, left))

    def _is_over(self, delivery: Delivery) -> bool:
        expires_ms = self.pending[delivery]
        return delivery in self.queues.discards or (
            expires_ms is not None and self.spool.clock() >= expires_ms
        )


QueuesMachine.TestCase.settings = settings(max_examples=examples(30), stateful_step_count=30, deadline=None)
TestDeliveryQueues = QueuesMachine.TestCase
