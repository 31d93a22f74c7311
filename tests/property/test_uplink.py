"""The uplink against a cloud that does anything at any time: nothing is lost, and the loop never spins."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eventplane_mqtt.mailbox import Disconnected, LinkName
from tests.examples import examples
from tests.unit.edge.fakes import ALARM, CHORE, READING, Device, event, ids

CLOUD = LinkName.CLOUD
FAILURES = ("quota exceeded", "payload format invalid", "not authorized", "unspecified error")

steps = st.one_of(
    st.tuples(st.just("event"), st.sampled_from([READING, ALARM, CHORE])),
    st.tuples(
        st.just("answer"), st.tuples(st.integers(0, 5), st.sampled_from((None, None, None, *FAILURES)))
    ),
    st.tuples(st.just("hang up"), st.none()),
    st.tuples(st.just("pass"), st.sampled_from([0.0, 0.1, 1.0, 31.0, 301.0])),
)


class Cloud:
    """What a device's cloud has taken, and which publishes of this connection it has not answered."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.taken: set[str] = set()
        self._answered: set[tuple[int, int]] = set()

    def unanswered(self) -> list[tuple[int, bytes]]:
        wire = self.device.cloud.last
        return [
            (mid, payload)
            for mid, _, payload in wire.published
            if (wire.generation, mid) not in self._answered and self.device.cloud_link.up
        ]

    def answer(self, nth: int, failure: str | None) -> None:
        waiting = self.unanswered()
        if waiting:
            mid, payload = waiting[nth % len(waiting)]
            self._answered.add((self.device.cloud.last.generation, mid))
            if failure is None:
                self.taken |= set(ids(payload))
            self.device.turn(self.device.puback(mid, failure=failure))


@pytest.mark.source("P8")
@settings(max_examples=examples(60), deadline=None)
@given(st.lists(steps, max_size=60))
@example([("event", ALARM), *(2 * [("answer", (0, "payload format invalid")), ("pass", 1.0)])])
def test_what_was_stored_is_delivered_or_becomes_a_dead_letter(script: list[tuple[str, object]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        device = Device(Path(directory) / "spool.db")
        device.connect()
        cloud, sent = Cloud(device), set()
        for step in script:
            match step:
                case ("event", str(type)):
                    sent.add(f"e{len(sent)}")
                    device.send(event(f"e{len(sent) - 1}", type))
                case ("answer", (int(nth), failure)):
                    cloud.answer(nth, failure)
                case ("hang up", _):
                    device.turn(Disconnected(CLOUD, device.cloud_link.generation, "gone"))
                case ("pass", float(seconds)):
                    device.turn(after=seconds)
            if not device.cloud_link.up:
                device.turn(after=61.0)
                device.connect(CLOUD)
            assert device.forwarder.uplink.unacknowledged <= 10
            if device.forwarder._timeout_s() == 0.0:
                device.turn(
                    after=0.0
                )  # what became due in a turn, such as a report of a loss, is done by the next
            assert device.forwarder._timeout_s() != 0.0
        for _ in range(400):
            if not device.spool.backlog().get("device.outbox"):
                break
            cloud.answer(0, None)
            device.turn(after=1.0)
        assert not device.spool.backlog().get("device.outbox")
        refused = {each.data()["original_base64"] for each in device.letters()}
        assert len(sent - cloud.taken) <= len(refused)
        device.crash()
