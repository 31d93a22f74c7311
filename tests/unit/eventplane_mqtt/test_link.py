import itertools
from random import Random

import pytest

from eventplane_mqtt.link import Backoff, Link
from eventplane_mqtt.mailbox import LinkName
from tests.unit.edge.fakes import Wires


@pytest.fixture
def wires() -> Wires:
    return Wires()


@pytest.fixture
def link(wires: Wires) -> Link:
    return Link(LinkName.CLOUD, wires.dial, Backoff(1.0, 60.0, Random(1).random), connect_timeout_s=5.0)


def test_an_unanswered_attempt_ends(link: Link, wires: Wires, caplog: pytest.LogCaptureFixture) -> None:
    link.tick(0.0)
    link.tick(33.9)
    assert not wires.last.abandoned
    link.tick(34.0)
    assert wires.last.abandoned
    assert "neither connected nor refused within 34 s" in caplog.text
    due = link.deadline()
    assert due is not None
    link.tick(due)
    assert wires.last.generation == 2


@pytest.mark.source("C10")
def test_a_lost_connection_is_dialled_again_after_the_backoff(link: Link, wires: Wires) -> None:
    link.tick(0.0)
    assert link.connected(1, 0.0)
    assert link.deadline() is None
    assert link.disconnected(1, "gone", 50.0)
    due = link.deadline()
    assert due is not None
    assert 51.0 <= due <= 53.0
    link.tick(due - 0.01)
    assert len(wires.all) == 1
    link.tick(due)
    assert wires.last.generation == 2


@pytest.mark.parametrize(
    ("ends_at", "reason", "is_named"),
    [
        ((1.0, 30.0, 59.0), "connection lost: the broker hung up", True),
        ((1.0, 30.0, 92.0), "connection lost: the broker hung up", False),
        ((1.0, 30.0), "connection lost: the broker hung up", False),
        ((1.0, 30.0, 59.0), "connection lost: timed out", False),
    ],
)
def test_two_programs_that_take_the_session_from_each_other_are_named(
    link: Link,
    wires: Wires,
    caplog: pytest.LogCaptureFixture,
    ends_at: tuple[float, ...],
    reason: str,
    is_named: bool,
) -> None:
    for at in ends_at:
        link.tick(link.deadline() or 0.0)
        link.connected(wires.last.generation, at)
        link.disconnected(wires.last.generation, reason, at)
    assert ("another program connects with the same client id" in caplog.text) is is_named


def test_a_connection_that_drops_at_once_counts_as_a_failed_attempt(link: Link, wires: Wires) -> None:
    now, dialled = 0.0, []
    for _ in range(12):
        link.tick(now)
        dialled.append(now)
        link.connected(wires.last.generation, now)
        link.disconnected(wires.last.generation, "gone", now)
        now = link.deadline() or 0.0
    waits = [later - earlier for earlier, later in itertools.pairwise(dialled)]
    assert min(waits) >= 1.0
    assert max(waits) > 10.0
    assert link.connects == 12


def test_an_urgent_event_waits_at_most_five_times_the_shortest_delay(link: Link, wires: Wires) -> None:
    now, waits = 0.0, []
    for _ in range(30):
        link.tick(now)
        ended = now
        link.disconnected(wires.last.generation, "gone", ended)
        link.hurry()
        now = link.deadline() or 0.0
        waits.append(now - ended)
    assert min(waits) >= 1.0
    assert max(waits) <= 5.0
    link.tick(now)
    due = link.deadline()
    link.hurry()
    assert link.deadline() == due, "an attempt that is under way is not given up sooner"


def test_a_connection_that_was_up_for_the_longest_backoff_resets_it(link: Link, wires: Wires) -> None:
    now = 0.0
    for stood in [0.0] * 10 + [60.0]:
        link.tick(now)
        link.connected(wires.last.generation, now)
        now += stood
        link.disconnected(wires.last.generation, "gone", now)
        last, now = now, link.deadline() or 0.0
    assert now - last <= 3.0


def test_reports_of_an_earlier_connection_are_ignored(link: Link) -> None:
    link.tick(0.0)
    link.disconnected(1, "gone", 0.0)
    link.tick(60.0)
    assert not link.connected(1, 0.0)
    assert not link.disconnected(1, "gone twice", 61.0)
    assert link.connected(2, 61.0)


def test_an_acknowledgement_goes_only_over_the_connection_of_its_message(link: Link, wires: Wires) -> None:
    link.tick(0.0)
    link.connected(1, 0.0)
    link.acknowledge(1, 7)
    link.disconnected(1, "gone", 0.0)
    link.acknowledge(1, 8)
    link.tick(60.0)
    link.acknowledge(1, 9)
    link.acknowledge(2, 1)
    assert [wire.acknowledged for wire in wires.all] == [[7], [1]]


@pytest.mark.parametrize("up", [True, False])
def test_a_closed_link_stays_closed(link: Link, wires: Wires, up: bool) -> None:
    link.tick(0.0)
    if up:
        link.connected(1, 0.0)
    link.close(1.0)
    assert (wires.last.closed, wires.last.abandoned) == (up, not up)
    link.tick(1_000.0)
    assert link.deadline() is None
    assert len(wires.all) == 1


def test_publishing_while_down_is_an_error(link: Link) -> None:
    with pytest.raises(RuntimeError, match="down"):
        link.connection.publish("topic", b"")


@pytest.mark.source("C10")
def test_the_backoff_grows_to_its_bound_and_never_undercuts_the_budget() -> None:
    backoff = Backoff(1.0, 60.0, Random(1).random)
    for failures, ceiling in [(1, 2.0), (3, 8.0), (6, 60.0), (10_000, 60.0)]:
        delays = [backoff.delay_s(failures) for _ in range(200)]
        assert min(delays) >= 1.0
        assert ceiling / 2 < max(delays) <= 1.0 + ceiling
