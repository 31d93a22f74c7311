"""On which TCP addresses a test run and the processes that it started listen."""

import os
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Final

import pytest

from lab.background import Background
from lab.benchmarks.processes import children

_PROC: Final = Path("/proc")
_LISTENS: Final = "0A"
_EVERY_S: Final = 0.5

BY_DESIGN: Final[set[int]] = set()
"""Ports of brokers with a profile that a test is about: they listen where it says, for a moment."""

Listener = tuple[IPv4Address | IPv6Address, int]
"""Address and port."""


def listeners() -> set[Listener]:
    """Return those of this process and of all that it started."""
    sockets = {each for pid in _tree() for each in sockets_of(pid)}
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in (_PROC / "net" / table).read_text().splitlines()[1:]
    ]
    return {_listener(row[1]) for row in rows if row[3] == _LISTENS and row[9] in sockets}


def elsewhere(found: set[Listener]) -> list[Listener]:
    """Return those that are not on the loopback interface."""
    return [each for each in found if not (getattr(each[0], "ipv4_mapped", None) or each[0]).is_loopback]


class _Watch(Background):
    def __init__(self) -> None:
        super().__init__("listeners")
        self.found: set[Listener] = set()

    def _run(self) -> None:
        while not self._ending.wait(_EVERY_S):
            self.found |= listeners()


@pytest.fixture(scope="session", autouse=True)
def only_the_loopback_interface() -> Iterator[None]:
    """Nothing that these tests start listens anywhere else."""
    with _Watch() as watch:
        yield
    found = [each for each in elsewhere(watch.found) if each[1] not in BY_DESIGN]
    assert not found, f"they listened for others too: {found}"


def _tree() -> Iterator[int]:
    waiting = [os.getpid()]
    while waiting:
        yield (pid := waiting.pop())
        waiting += children(pid)


def sockets_of(pid: int) -> Iterator[str]:
    """Yield the numbers of the sockets that a process has open, while it lives."""
    with suppress(OSError):
        for each in (_PROC / str(pid) / "fd").iterdir():
            with suppress(OSError):
                if (name := str(each.readlink())).startswith("socket:["):
                    yield name[len("socket:[") : -1]


def _listener(text: str) -> Listener:
    """Read `0100007F:1F90`: words of 32 bits in the machine's order, and a port."""
    address, _, port = text.partition(":")
    words = [bytes.fromhex(address[at : at + 8])[::-1] for at in range(0, len(address), 8)]
    return ip_address(b"".join(words)), int(port, 16)
