"""Full disks, damage, crashes, reloads, a failing cloud: what was receipted is delivered or told as lost.

And whatever the disk does, an alarm calls at once, and its repetitions do not call again.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge.errors import SpoolCorruptError, SpoolFullError
from edge.forwarder import Reload
from edge.spool import Spool
from eventplane.device_reports import DISCARDED
from eventplane.envelope import Envelope, parse_event
from eventplane.receipts import Receipt, digest, write_receipts
from eventplane.topics import local_topic
from eventplane_mqtt.mailbox import LinkName
from tests.examples import examples
from tests.scratch import SCRATCH
from tests.unit.edge.fakes import ALARM, CHORE, READING, Device, contract, event

LOCAL, CLOUD = LinkName.LOCAL, LinkName.CLOUD
REAL_COMMIT = Spool.commit

arrive = st.tuples(
    st.just("arrive"), st.lists(st.sampled_from([READING, ALARM, CHORE]), min_size=1, max_size=6)
)
happen = st.tuples(
    st.just("happen"),
    st.sampled_from(
        ["no arrivals", "no room", "room", "damage", "crash", "reload", "hang up", "wait", "again"]
    ),
)
answer = st.tuples(st.just("answer"), st.sampled_from([None, None, "quota exceeded", "unspecified error"]))


class Faults:
    """A device whose disk has no room for arrivals, or for anything, and whose spool turns out `damaged`."""

    def __init__(self, path: Path) -> None:
        self.full = "room"
        self.damaged = self.recovered = False
        self.device = Device(path)
        self.device.connect()
        self.sent: list[Envelope] = []
        self.kept: set[str] = set()
        self.taken: dict[str, Envelope] = {}
        self.starts = 1
        self.calls: Counter[tuple[str, bool]] = Counter()
        self._called: set[tuple[int, int]] = set()
        self._answered: set[tuple[int, int]] = set()

    def commit(self, spool: Spool, arrivals: Any, done: Iterable[Any] = (), *rest: Any, **more: Any) -> None:
        if self.damaged:
            self.damaged, self.recovered = False, True
            self.starts += 1
            spool.path.with_name(spool.path.name + ".damaged").touch()
            raise SpoolCorruptError(spool.path, "page 3 is torn")
        if self.full == "no room" or (arrivals and self.full == "no arrivals"):
            raise SpoolFullError(spool.path, "the disk is full", "make room")
        REAL_COMMIT(spool, arrivals, done, *rest, **more)

    def arrive(self, kinds: list[str]) -> None:
        new = [event(f"e{len(self.sent) + n}", kind, pad="x" * 500) for n, kind in enumerate(kinds)]
        self.sent += new
        self.offer(new)
        self.offer([each for each in new if each.id not in self.kept])

    def offer(self, events: list[Envelope]) -> None:
        self.device.send(*events)
        receipted = {each.digest for each in self.device.receipts() if each.refused is None}
        self.kept |= {each.id for each in events if digest(each.json.encode()) in receipted}
        self.call()
        for each in events:
            assert each.type != ALARM or any(self.calls[each.id, stored] for stored in (True, False))

    def call(self) -> None:
        """The call service deals with all that it is given."""
        while given := self._given():
            for each in given:
                self.calls[each.id, "devicesequence" in each.attributes] += 1
            receipts = write_receipts(Receipt(digest(each.json.encode())) for each in given)
            self.device.turn(self.device.receipt_of("call", receipts))

    def _given(self) -> list[Envelope]:
        wires, given = self.device.local.all, []
        for mid, topic, payload in wires[-1].published:
            if topic == local_topic("call", "inbox") and (len(wires), mid) not in self._called:
                self._called.add((len(wires), mid))
                given.append(parse_event(payload))
        return given

    def happen(self, what: str) -> None:
        device = self.device
        match what:
            case "damage":
                self.damaged = True
            case "crash":
                device.restart()
                self.starts += 1
            case "reload":
                device.contract = contract(batching_delay_ms=len(self.sent))
                device.turn(Reload(device.contract))
            case "hang up":
                device.disconnect(CLOUD)
            case "wait":
                device.turn(after=31.0)
            case "again":
                self.offer([each for each in self.sent if each.id not in self.kept])
            case _:
                self.full = what
        device.turn(after=0.5)
        for name, link in ((LOCAL, device.local_link), (CLOUD, device.cloud_link)):
            while not link.up:
                device.turn(after=5.0)
                device.connect(name)
        self.call()

    def answer(self, failure: str | None) -> None:
        wires = self.device.cloud.all
        for mid, _, payload in list(wires[-1].published):
            if (len(wires), mid) in self._answered:
                continue
            self._answered.add((len(wires), mid))
            if failure is None:
                self.taken |= {each.id: each for each in self.device.unpacked(payload)}
            self.device.turn(self.device.puback(mid, failure=failure))
            return

    def heal(self) -> None:
        self.damaged = False
        self.happen("room")
        for _ in range(100):
            self.happen("again")
            for _ in range(12):
                self.answer(None)
            self.device.turn(after=10.0)
            if len(self.kept) == len(self.sent) and not self.waiting():
                return

    def waiting(self) -> int:
        return sum(self.device.spool.pending("device.outbox", rank) for rank in (0, 1, 2))

    def told(self) -> int:
        """How many deliveries to the cloud are reported as lost, or counted for the next report."""
        reports = [each.data() for each in self.taken.values() if each.type == DISCARDED]
        counted = (each for each in self.device.spool.loss_reports() if each.destination == "device.outbox")
        return sum(each.count for each in counted) + sum(
            tally["count"]
            for report in reports
            for tally in report["deliveries"]
            if tally["destination"] == "device.outbox"
        )


@pytest.mark.source("C-W2")
@given(st.lists(st.one_of(arrive, arrive, happen, answer), max_size=25))
@settings(max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_was_receipted_is_delivered_or_reported_as_lost(
    story: list[tuple[str, Any]],
) -> None:
    with tempfile.TemporaryDirectory(dir=SCRATCH) as directory:
        faults = Faults(Path(directory) / "spool.db")

        def commit(spool: Spool, *given: Any, **named: Any) -> None:
            faults.commit(spool, *given, **named)

        with patch.object(Spool, "commit", commit):
            for what, details in story:
                getattr(faults, what)(details)
            faults.heal()
        assert faults.waiting() == 0
        assert {each.id for each in faults.sent} == faults.kept
        missing = faults.kept - faults.taken.keys()
        # What was dropped and not yet reported goes with a damaged spool, whose end is reported.
        assert len(missing) <= faults.told() or faults.recovered
        urgent = {each.id for each in faults.sent if each.type == ALARM}
        assert not missing & urgent
        assert all(count <= faults.starts for (_, stored), count in faults.calls.items() if not stored)
        faults.device.crash()
