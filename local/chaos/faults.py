"""What can go wrong, each kind as one small class with a beginning and an end.

`start` breaks one thing, `heal` makes it whole again; both may be called whatever else is broken, and wait
for nothing that another fault holds up. What ends on the way is `local.chaos.restarter`'s to start again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import ClassVar, Final

from eventplane.contract import Contract
from local.chaos.disk import SmallDisk
from local.chaos.load import Sender
from local.errors import LocalError
from local.home import Home
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


class NothingStruckError(LocalError):
    """What was to be struck was not there in this moment."""


class Fault(ABC):
    """One thing that breaks and is mended. What is not lasting is over as soon as it began."""

    is_lasting: ClassVar[bool] = True

    @abstractmethod
    def start(self) -> None:
        """Break it. Raises `NothingStruckError`."""

    def heal(self) -> None:  # noqa: B027 - what is not lasting has nothing to mend
        """Make it whole again."""


@dataclass(frozen=True)
class Kill(Fault):
    """`kill -9`; whoever supervises the process starts it again at the end."""

    child: Child

    def start(self) -> None:
        self.child.kill()

    def heal(self) -> None:
        self.child.launch()  # not waited for: it may be another fault's end that makes it ready


@dataclass(frozen=True)
class Freeze(Fault):
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
class Cut(Fault):
    """Every connection of the line is reset, new ones are refused."""

    link: Link

    def start(self) -> None:
        self.link.cut()

    def heal(self) -> None:
        self.link.heal()


@dataclass(frozen=True)
class BadWeather(Fault):
    """The line has `weather`; a silent one is a black hole."""

    link: Link
    weather: Weather

    def start(self) -> None:
        self.link.set_weather(self.weather)

    def heal(self) -> None:
        self.link.set_weather(FAIR)


class ReconnectStorm(Fault):
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
class FullDisk(Fault):
    """Somebody else has filled the disk that the spool is on."""

    disk: SmallDisk

    def start(self) -> None:
        self.disk.fill()

    def heal(self) -> None:
        self.disk.empty()


class ClockJump(Fault):
    """The device's wall clock is weeks ahead, the next time weeks behind."""

    def __init__(self, jump: Callable[[float], None]) -> None:
        self._jump = jump
        self._ahead = True

    def start(self) -> None:
        self._jump(CLOCK_JUMP_S if self._ahead else -CLOCK_JUMP_S)
        self._ahead = not self._ahead

    def heal(self) -> None:
        self._jump(0)


class Malformed(Fault):
    """A service sends every kind of malformed message, and oversized ones, among its events."""

    is_lasting = False

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._numbers = count()

    def start(self) -> None:
        for _ in range(_POISON):
            self._sender.send_poison(
                poison(next(self._numbers), f"/homes/{self._sender.home}/activity-service")
            )


class ContractChange(Fault):
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
        self._home.reload_contract(contract.canonical[:-100])

    def heal(self) -> None:
        self._home.reload_contract(self._versions[self._turn % len(self._versions)].canonical)


@dataclass(frozen=True)
class Moment(Fault):
    """Something done at once, which mends itself. `now` says how many it struck."""

    is_lasting = False
    now: Callable[[], int]

    def start(self) -> None:
        if not self.now():
            raise NothingStruckError("nothing of that kind runs")
