"""What can go wrong, each kind as one small class with a beginning and an end.

`start` breaks one thing, `heal` makes it whole again; both may be called whatever else is broken.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final, Protocol

from eventplane.contract import Contract
from local.chaos.disk import SmallDisk
from local.chaos.home import Home
from local.chaos.load import Sender
from local.network import Link
from local.poison import poison
from local.process import Child
from local.weather import FAIR, Weather

SLOW_LINE: Final = Weather(delay_s=0.6, loss=0.02)
"""A bad mobile connection: 600 ms each way, 2 % of the segments lost."""

NARROW_LINE: Final = Weather(bytes_per_s=4_096)
"""What a quota leaves of a line, far below what the homes send."""

CLOCK_JUMP_S: Final = 20 * 86_400.0
_STORM_S: Final = 0.2
_POISON: Final = 22


class Fault(Protocol):
    """One thing that breaks and is mended."""

    def start(self) -> None: ...
    def heal(self) -> None: ...


@dataclass(frozen=True)
class Kill:
    """`kill -9`; whoever supervises the process starts it again at the end."""

    child: Child

    def start(self) -> None:
        self.child.kill()

    def heal(self) -> None:
        self.child.start()


@dataclass(frozen=True)
class Freeze:
    """SIGSTOP: the process stands still with all its connections, and goes on at the end."""

    child: Child

    def start(self) -> None:
        self._signal(signal.SIGSTOP)

    def heal(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        pid = self.child.pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, number)


@dataclass(frozen=True)
class Cut:
    """Every connection of the line is reset, new ones are refused."""

    link: Link

    def start(self) -> None:
        self.link.cut()

    def heal(self) -> None:
        self.link.heal()


@dataclass(frozen=True)
class BadWeather:
    """The line has `weather`; a silent one is a black hole."""

    link: Link
    weather: Weather

    def start(self) -> None:
        self.link.set_weather(self.weather)

    def heal(self) -> None:
        self.link.set_weather(FAIR)


class ReconnectStorm:
    """Every connection is reset as soon as it is made, five times a second."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._over.clear()
        self._thread = threading.Thread(target=self._rage, daemon=True)
        self._thread.start()

    def heal(self) -> None:
        self._over.set()
        if self._thread:
            self._thread.join()

    def _rage(self) -> None:
        while not self._over.wait(_STORM_S):
            self._link.drop()


@dataclass(frozen=True)
class FullDisk:
    """Somebody else has filled the disk that the spool is on."""

    disk: SmallDisk

    def start(self) -> None:
        self.disk.fill()

    def heal(self) -> None:
        self.disk.empty()


class ClockJump:
    """The device's wall clock is weeks ahead, the next time weeks behind."""

    def __init__(self, jump: Callable[[float], None]) -> None:
        self._jump = jump
        self._ahead = True

    def start(self) -> None:
        self._jump(CLOCK_JUMP_S if self._ahead else -CLOCK_JUMP_S)
        self._ahead = not self._ahead

    def heal(self) -> None:
        self._jump(0)


class Malformed:
    """A service sends every kind of malformed message, and oversized ones, among its events."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._numbers = count()

    def start(self) -> None:
        for _ in range(_POISON):
            self._sender.send_poison(
                poison(next(self._numbers), f"/homes/{self._sender.home}/activity-service")
            )

    def heal(self) -> None:
        """What was sent was sent."""


class ContractChange:
    """The contracts of `versions` come into force in turn, in the cloud and on the device.

    The device gets a broken file first. It is told by SIGHUP, as `systemctl reload` does.
    """

    def __init__(
        self, home: Home, put_in_cloud: Callable[[Contract], None], versions: Sequence[Contract]
    ) -> None:
        self._home = home
        self._put_in_cloud = put_in_cloud
        self._versions = versions
        self._turn = 0

    def start(self) -> None:
        self._turn += 1
        contract = self._versions[self._turn % len(self._versions)]
        self._put_in_cloud(contract)
        self._reload(contract.canonical[:-100])

    def heal(self) -> None:
        self._reload(self._versions[self._turn % len(self._versions)].canonical)

    def _reload(self, text: bytes) -> None:
        self._home.put_contract(text)
        pid = self._home.forwarder.pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGHUP)


@dataclass(frozen=True)
class Moment:
    """Something done at once, which mends itself or is mended by `after`."""

    now: Callable[[], object]
    after: Callable[[], object] = lambda: None

    def start(self) -> None:
        self.now()

    def heal(self) -> None:
        self.after()
