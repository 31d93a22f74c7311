"""Random commits to a spool with what it then has, and the programs that are recorded."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import edge.spool.database
from edge import durable
from edge.spool import BEFORE_EVERYTHING, Delivery, DeviceState, Discard, StoredEvent
from edge.spool.database import PAGE_BYTES
from edge.spool.store import Spool
from edge.system import SYSTEM, Host
from eventplane.device_reports import KEY_BYTES
from eventplane.downlink.device import StateVersion
from eventplane.reasons import Outcome
from eventplane_client.notices import Notice
from eventplane_client.sqlite_duplicates import SqliteFilter
from parts.provisioning import OfflineError
from parts.provisioning.exchange import Exchange, Keep
from parts.provisioning.renewal import MOST_TRIES, Pairs, Renewal

NAME = "spool.db"
DESTINATIONS = ("device.outbox", "call.inbox", "display.inbox")
RANKS = (0, 1, 2)
LOG_BYTES = 96 * 1024
_LARGEST = 3_000
_REOPEN, _TIDY, _REPORT, _DELETED, _EXPIRES, _NUMBERED = 0.02, 0.1, 0.1, 0.2, 0.2, 0.2
_LIFETIME_MS = 60_000
KINDS = ("state", "command")
KEYS = tuple(f"a/b/{n}" for n in range(5))


def state(spool: Spool) -> dict[str, object]:
    """All that must not be lost or come back, for comparison."""
    waiting = {}
    for destination in DESTINATIONS:
        for rank in RANKS:
            rows = spool.read(destination, rank, BEFORE_EVERYTHING, 10_000)
            if len(rows) != spool.pending(destination, rank):
                raise AssertionError(f"{len(rows)} wait, counted {spool.pending(destination, rank)}")
            waiting[f"{destination} {rank}"] = [
                [each.delivery.sequence, hash_of(each.json), each.expires_ms] for each in rows
            ]
    return {
        "epoch": spool.epoch,
        "next": spool.next_sequence,
        "counted": dict(sorted(spool.counted.items())),
        "waiting": waiting,
        "statements": [str(each) for each in spool.manifests()],
        "discards": [str(each) for each in spool.loss_reports()],
        "recent": [each.hex() for each in spool.recent_keys(5)],
        "held": [_described(spool.device_state(kind, key)) for kind in KINDS for key in KEYS],
    }


def _described(found: DeviceState | None) -> list[object]:
    return [] if found is None else [str(found.state_version), found.sequence, hash_of(found.json)]


def hash_of(text: str) -> int:
    """A number that depends on the text only, in every process."""
    return sum(text.encode("utf-8")) * len(text)


class Workload:
    """Random commits to the spool at `path`; `stored` has each event, under its epoch and number."""

    def __init__(self, path: Path, random: Random, system: Host = SYSTEM) -> None:
        self._path = path
        self._system = system
        self._random = random
        self._spool = Spool(path, system)
        self.stored: dict[tuple[str, int], StoredEvent] = {}
        self.states: list[DeviceState] = []

    def run(self, commits: int, before: Callable[[], None], after: Callable[[Spool], None]) -> None:
        """Make `commits`, call `before` and `after` each, and close the spool."""
        for _ in range(commits):
            before()
            self._commit()
            after(self._spool)
            if self._random.random() < _TIDY:
                self._spool.tidy()
            if self._random.random() < _REOPEN:
                self._spool.close()
                self._spool = Spool(self._path, self._system)
        self._spool.close()

    def _commit(self) -> None:
        random, first = self._random, self._spool.next_sequence
        arrivals = [self._arrival(first + n) for n in range(random.choice((0, 1, 1, 2, 8)))]
        self.stored |= {(self._spool.epoch, each.sequence): each for each in arrivals}
        states = [self._device_state(first) for _ in range(random.choice((0, 0, 1, 3)))]
        self.states += states
        ending = self._some_waiting()
        dropped = [Discard(each, Outcome.DROPPED, "full") for each in ending[::5]]
        done = [each for n, each in enumerate(ending) if n % 5]
        report = random.random() < _REPORT
        self._spool.commit(
            arrivals,
            done,
            dropped,
            uptime_ms=first,
            states=states,
            close_manifests=report,
            close_loss_reports=report,
        )

    def _arrival(self, sequence: int) -> StoredEvent:
        random = self._random
        pad = random.choice("abc") * random.randrange(_LARGEST)
        text = json.dumps({"epoch": self._spool.epoch, "n": sequence, "pad": pad})
        expires_ms = sequence + _LIFETIME_MS if random.random() < _EXPIRES else None
        destinations = dict.fromkeys(random.sample(DESTINATIONS, random.choice((1, 1, 2))), expires_ms)
        key = random.randbytes(KEY_BYTES)
        positions = {f"c{sequence % 3}": sequence} if random.random() < _NUMBERED else {}
        return StoredEvent(sequence, random.choice(RANKS), text, destinations, key, positions)

    def _device_state(self, version: int) -> DeviceState:
        random = self._random
        text = json.dumps({"pad": random.choice("abc") * random.randrange(_LARGEST)})
        held = StateVersion(
            reset=0,
            version=version,
            is_deleted=random.random() < _DELETED,
            order=version,
            sender="s",
            source="/s",
            id=f"{version}",
        )
        return DeviceState(random.choice(KINDS), random.choice(KEYS), held, 1, version, text)

    def _some_waiting(self) -> list[Delivery]:
        ways = [(destination, rank) for destination in DESTINATIONS for rank in RANKS]
        return [
            each.delivery
            for destination, rank in self._random.sample(ways, 4)
            for each in self._spool.read(destination, rank, BEFORE_EVERYTHING, self._random.randrange(12))
        ]


_RESTART = 0.1
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
        if random.random() < _RESTART:
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
