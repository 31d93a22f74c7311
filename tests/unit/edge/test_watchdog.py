from __future__ import annotations

import pytest

from edge.health.watchdog import Progress, Watchdog

PATIENCE_S = 90.0


class Line:
    """A watchdog that looks at a line; `after` seconds pass first."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.watchdog = Watchdog(10.0, self.now)

    def complaint(self, connection: int, answered: int, waiting: int, after: float = 10.0) -> str | None:
        self.now += after
        return self.watchdog.complaint(Progress(connection, answered, waiting), self.now, PATIENCE_S)


def test_it_is_due_once_an_interval() -> None:
    watchdog = Watchdog(10.0, 0.0)
    assert [watchdog.is_due(at) for at in (0.0, 0.1, 9.9, 10.0, 10.1, 35.0, 44.9, 45.0)] == [
        True, False, False, True, False, True, False, True,
    ]  # fmt: skip
    assert watchdog.deadline() == 55.0


def test_it_wakes_nobody_when_nobody_asks() -> None:
    watchdog = Watchdog(None, 0.0)
    assert watchdog.deadline() is None
    assert not watchdog.is_due(1e9)


@pytest.mark.source("P15")
def test_a_connected_line_with_a_backlog_and_no_acknowledgement_is_stuck() -> None:
    line = Line()
    line.complaint(1, 5, 2)
    assert line.complaint(1, 5, 2, after=89.9) is None
    assert line.complaint(1, 5, 2, after=0.1) == (
        "2 deliveries wait and the connected cloud answered no publish for 90 s"
    )


def test_it_recovers_when_the_line_moves_again() -> None:
    line = Line()
    line.complaint(1, 5, 2)
    assert line.complaint(1, 5, 2, after=500.0) is not None
    assert line.complaint(1, 6, 2) is None


def test_answers_keep_it_fed() -> None:
    line = Line()
    assert [line.complaint(1, done, 1_000, after=80.0) for done in range(20)] == [None] * 20


def test_a_cloud_that_is_away_starves_nobody() -> None:
    line = Line()
    assert [line.complaint(0, 5, 1_000, after=1_000.0) for _ in range(20)] == [None] * 20


def test_a_cloud_that_is_silent_starves_nobody_while_the_uplink_reconnects() -> None:
    line = Line()
    assert [line.complaint(connection, 5, 1_000, after=60.0) for connection in range(1, 20)] == [None] * 19


def test_an_idle_line_starves_nobody() -> None:
    line = Line()
    assert [line.complaint(1, 5, 0, after=1_000.0) for _ in range(20)] == [None] * 20


def test_what_begins_to_wait_after_a_long_quiet_gets_the_whole_patience() -> None:
    line = Line()
    line.complaint(1, 5, 0)
    assert line.complaint(1, 5, 1, after=1_000.0) is None
    assert line.complaint(1, 5, 1, after=89.0) is None
    assert line.complaint(1, 5, 1, after=1.0) is not None
