"""The programs that are recorded: `python -m lab.benchmarks.power.programs NAME FILE [SEED STEPS]`.

Each writes lines of JSON to its standard output: what it begins, and what its file then has.
"""

import json
import os
import sys
from pathlib import Path
from random import Random

import edge.spool.database
from edge import durable
from edge.spool import BEFORE_EVERYTHING, StoredEvent
from edge.spool.database import PAGE_BYTES
from edge.spool.store import Spool
from edge.system import SYSTEM
from eventplane.device_reports import KEY_BYTES
from eventplane_client.notices import Notice
from eventplane_client.sqlite_filter import SqliteFilter
from lab.benchmarks.power.workload import LOG_BYTES, Workload, state
from parts.provisioning import OfflineError
from parts.provisioning.exchange import Exchange, Keep
from parts.provisioning.renewal import MOST_TRIES, Pairs, Renewal

_REOPEN = 0.1
_COMMITS = 20
_TEXT = "x" * 3 * PAGE_BYTES


def commit(path: Path, seed: str, commits: str) -> None:
    """Run the workload, with a small log, so that checkpoints come often."""
    edge.spool.database.WAL_BYTES = LOG_BYTES
    workload = Workload(path, Random(int(seed)))
    workload.run(int(commits), lambda: _print({"begin": True}), lambda spool: _print({"state": state(spool)}))


def restart(path: Path) -> None:
    """Start after a kill, open the spool and be killed as well."""
    spool = Spool(path, SYSTEM)
    _print({"state": state(spool)})
    os._exit(0)


def recover(path: Path) -> None:
    """Fill a spool, damage it in the middle, recover it."""
    with Spool(path, SYSTEM) as spool:
        for n in range(1, _COMMITS + 1):
            arrival = StoredEvent(n, 1, f"{n}{_TEXT}", {"device.outbox": None}, bytes(KEY_BYTES))
            spool.commit([arrival], uptime_ms=n)
    file = os.open(path, os.O_RDWR)
    os.pwrite(file, b"\xff" * PAGE_BYTES, path.stat().st_size // 2 // PAGE_BYTES * PAGE_BYTES)
    os.fsync(file)
    os.close(file)
    path.with_name(path.name + ".damaged").touch()
    durable.sync(path.parent)
    _print("damaged")
    _print(recovered(path))


def recovered(path: Path) -> list[str]:
    """Return what is pending once the spool at `path` has started: numbers of events."""
    with Spool(path, SYSTEM) as spool:
        rows = spool.read("device.outbox", 1, BEFORE_EVERYTHING, 10 * _COMMITS)
        return [each.json.removesuffix(_TEXT) for each in rows]


def claim(path: Path, seed: str, steps: str) -> None:
    """Claim and finish events in the client library's state, which is reopened now and then."""
    random = Random(int(seed))
    filter = SqliteFilter(path, on_notice=_ignore)
    in_flight: list[int] = []
    for number in range(int(steps)):
        done = [each for each in in_flight if random.random() < 0.7]
        filter.claim([key(number)], [key(each) for each in done])
        in_flight = [each for each in in_flight if each not in done] + [number]
        _print({"claimed": number, "done": done})
        if random.random() < _REOPEN:
            filter.close()
            filter = SqliteFilter(path, on_notice=_ignore)
    filter.close()


class _Cloud:
    """Issues one certificate, and prints when it is registered."""

    def run(self, _exchange: Exchange, keep: Keep, *_: object) -> None:
        keep("new", "key")
        _print("registered")

    def try_pair(self, pair: Path) -> None:
        if "new" not in pair.read_text():
            raise OfflineError("home-1", "never registered")
        _print("proven")


def renew(path: Path) -> None:
    """Replace the device's pair of key and certificate by a new one, and one that was not answered."""
    durable.write(path, b"old")
    identity = Pairs(path)
    identity.stage("key", "lost")
    _print("issued")
    renewal = Renewal(identity, _Cloud(), "fleet", "home-1", 1.0, None)
    renewal.refusals = MOST_TRIES
    renewal.attempt(0.0)


def key(number: int) -> bytes:
    """The digest of event `number`."""
    return number.to_bytes(16, "big")


def _print(line: object) -> None:
    os.write(1, json.dumps(line).encode() + b"\n")


def _ignore(notice: Notice) -> None:
    pass


if __name__ == "__main__":
    programs = {each.__name__: each for each in (commit, restart, recover, claim, renew)}
    programs[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
