"""Tasks of a history wait as long as they ask for, whatever others that they began do meanwhile."""

from __future__ import annotations

import pytest

from local.histories.engine import Engine, Killed


@pytest.mark.parametrize("error", [None, ValueError(), Killed()])
def test_a_task_sleeps_on_when_one_that_it_began_ends(error: BaseException | None) -> None:
    engine, ends_s = Engine(), []

    def work() -> None:
        engine.sleep(1.0)
        if error is not None:
            raise error

    def begin() -> None:
        engine.spawn("second", work)
        for seconds in (10.0, 5.0):
            engine.sleep(seconds)
            ends_s.append(engine.now_s)

    engine.spawn("first", begin)
    engine.run(100.0)
    assert ends_s == [10.0, 15.0]
