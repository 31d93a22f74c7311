import os
import signal
from pathlib import Path

from lab.process import Supervisor
from tests.eventually import eventually


def test_an_unasked_end_is_reported(tmp_path: Path) -> None:
    with Supervisor(tmp_path) as supervisor:
        child = supervisor.start("shot", ["sleep", "60"])
        assert child.pid is not None
        os.kill(child.pid, signal.SIGTERM)
        assert eventually(lambda: child.has_ended)
        child.kill()
        child.revive()
        assert not child.running
        child.start()
        child.stop()
        assert [(each.name, each.status) for each in child.ends] == [("shot", -signal.SIGTERM)]
