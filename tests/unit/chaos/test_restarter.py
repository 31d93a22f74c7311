"""What ends by itself is started again, and only a fault excuses it."""

import os
from pathlib import Path

from local.chaos.faults import Struck
from local.chaos.verdict import by_themselves
from local.process import End, Restarter, Supervisor
from tests.eventually import eventually

FULL = Struck("disk-full", "home-1", began=100.0, ended=103.0)


def test_what_ended_by_itself_runs_again(tmp_path: Path) -> None:
    first_fails = f"[ -e {tmp_path}/once ] && exec sleep 60; touch {tmp_path}/once; exit 5"
    with Supervisor(tmp_path) as supervisor:
        child = supervisor.start("first-fails", ["sh", "-c", first_fails])
        killed = supervisor.start("killed", ["sleep", "60"])
        with Restarter([child, killed], pause_s=0.0) as restarter:
            killed.kill()
            assert eventually(lambda: child.running and bool(child.ends))
            assert [(end.name, end.status) for end in restarter.ends] == [("first-fails", 5)]
            assert not killed.running


def test_a_full_disk_excuses_the_forwarder_that_started_on_it() -> None:
    refused = End("forwarder-home-1", os.EX_IOERR, started=102.9, at=103.5)
    others = [
        End("forwarder-home-1", os.EX_IOERR, started=103.1, at=103.5),
        End("forwarder-home-1", 1, started=102.9, at=103.5),
        End("forwarder-home-2", os.EX_IOERR, started=102.9, at=103.5),
        End("cloud-worker", os.EX_IOERR, started=102.9, at=103.5),
    ]
    assert by_themselves([refused, *others], [FULL]) == others
