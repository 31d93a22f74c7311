from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.process import Supervisor
from tests.eventually import eventually

SLEEPER = ["sleep", "60"]


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    with Supervisor(tmp_path) as it:
        yield it


def test_an_end_that_nobody_asked_for_is_reported(supervisor: Supervisor, tmp_path: Path) -> None:
    first_fails = f"[ -e {tmp_path}/once ] && exec sleep 60; touch {tmp_path}/once; exit 5"
    child = supervisor.start("first-fails", ["sh", "-c", first_fails])
    assert eventually(lambda: child.has_ended)
    assert [each.status for each in child.ends] == [5]

    child.revive()
    assert child.running
    child.stop()

    assert not child.has_ended
    assert [(each.name, each.status) for each in child.ends] == [("first-fails", 5)]


def test_a_kill_of_what_had_ended_by_itself_hides_nothing(supervisor: Supervisor) -> None:
    child = supervisor.start("shot", SLEEPER)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGTERM)
    assert eventually(lambda: child.has_ended)

    child.kill()
    child.revive()

    assert not child.running
    assert [each.status for each in child.ends] == [-signal.SIGTERM]
