"""Free TCP ports on the loopback interface."""

import random
import socket
from pathlib import Path

LOOPBACK = "127.0.0.1"

_LOWEST = 10_240
_TRIES = 1_000
_DEFAULT_EPHEMERAL = 32_768
_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")

_given: set[int] = set()
_dice = random.SystemRandom()  # unlike `random`, not repeated by a seeded run beside this one


class NoFreePortError(OSError):
    """Every port that was tried is taken."""

    def __init__(self, lowest: int, highest: int) -> None:
        self.lowest, self.highest = lowest, highest
        super().__init__(f"no free TCP port between {lowest} and {highest}; end what occupies them")


def free_port() -> int:
    """Return a free TCP port on 127.0.0.1, never the same twice in one process. Raises `NoFreePortError`.

    It lies below the kernel's ephemeral range. A port inside that range can be taken by any outgoing
    connection while its server restarts, and a client that dials it meanwhile can even connect to itself.
    """
    highest = _first_ephemeral() - 1
    for _ in range(_TRIES):
        port = _dice.randint(_LOWEST, highest)
        if port not in _given and _can_bind(port):
            _given.add(port)
            return port
    raise NoFreePortError(_LOWEST, highest)


def is_listening(port: int) -> bool:
    """Return whether something accepts TCP connections on 127.0.0.1:`port`."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0


def _first_ephemeral() -> int:
    try:
        first = int(_RANGE_FILE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _DEFAULT_EPHEMERAL
    return first if first > _LOWEST + 1_000 else _DEFAULT_EPHEMERAL


def _can_bind(port: int) -> bool:
    # Every interface: some servers cannot bind the loopback only.
    with socket.socket() as probe:
        try:
            probe.bind(("0.0.0.0", port))  # noqa: S104 - a probe, closed at once
        except OSError:
            return False
        return True
