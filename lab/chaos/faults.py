"""The faults of a run by their kinds, and the thread that injects them by a schedule.

A fault may start and heal whatever else is broken, and waits for nothing that another fault delays.
`lab.process.Restarter` restarts processes that end meanwhile.
"""

import contextlib
import json
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, cycle
from time import monotonic, time
from typing import Final

from eventplane.contract import Contract, Ordering, compile_contract, load_compiled
from eventplane.contract.canonical import canonical_bytes
from lab.background import Background
from lab.chaos.load import LoadSender
from lab.chaos.schedule import PlannedFault
from lab.errors import LocalError
from lab.home import Home
from lab.network import UNIMPAIRED, Impairment, NetworkLink
from lab.poison import poison
from lab.process import Child

SLOW_LINE: Final = Impairment(delay_s=0.6, loss=0.02)
"""A bad mobile connection: 600 ms each way, 2 % of the segments lost."""

NARROW_LINE: Final = Impairment(bytes_per_s=4_096)
"""What a quota leaves of a connection, far below what the homes send."""

CLOCK_JUMP_S: Final = 20 * 86_400.0
_STORM_S: Final = 0.2
_MALFORMED: Final = 22
"""Malformed messages at a time: two of each kind."""


class NothingStruckError(LocalError):
    """The target of a fault does not exist at the moment."""


@dataclass(frozen=True)
class ChaosFault:
    """`start` breaks one thing and `heal` repairs it; one without `heal` is over as soon as it began.

    `start` may raise `NothingStruckError`.
    """

    start: Callable[[], object]
    heal: Callable[[], object] | None = None


def kill(*children: Child) -> ChaosFault:
    """Kill processes (SIGKILL) and launch them again; another fault may keep one from becoming ready."""

    def start() -> None:
        for each in children:
            each.kill()

    def heal() -> None:
        for each in children:
            each.launch()

    return ChaosFault(start, heal)


def restart_storm(homes: Sequence[Home]) -> ChaosFault:
    """Kill every process of all homes, as when the power of a region fails: all come back at one moment."""
    return kill(*(child for home in homes for child in home.children))


def freeze(*children: Child) -> ChaosFault:
    """Stop processes with all their connections (SIGSTOP), and let them go on."""

    def send(number: signal.Signals) -> None:
        for pid in (each.pid for each in children):
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, number)

    return ChaosFault(partial(send, signal.SIGSTOP), partial(send, signal.SIGCONT))


def impaired(link: NetworkLink, impairment: Impairment) -> ChaosFault:
    return ChaosFault(partial(link.impair, impairment), partial(link.impair, UNIMPAIRED))


def reconnect_storm(link: NetworkLink) -> ChaosFault:
    """Reset every connection five times a second."""
    over = threading.Event()
    threads: list[threading.Thread] = []

    def drop() -> None:
        while not over.wait(_STORM_S):
            link.drop()

    def start() -> None:
        over.clear()
        threads.append(threading.Thread(target=drop, daemon=True))
        threads[-1].start()

    def heal() -> None:
        over.set()
        while threads:
            threads.pop().join()

    return ChaosFault(start, heal)


def clock_jump(jump: Callable[[float], None]) -> ChaosFault:
    """Set the device's wall clock weeks ahead, and the next time weeks behind."""
    jumps = cycle((CLOCK_JUMP_S, -CLOCK_JUMP_S))
    return ChaosFault(lambda: jump(next(jumps)), lambda: jump(0))


def malformed(sender: LoadSender) -> ChaosFault:
    """Send every kind of malformed message, oversized ones too, among the events of a service."""
    numbers = count()

    def start() -> None:
        for _ in range(_MALFORMED):
            sender.send_malformed(poison(next(numbers), f"/homes/{sender.home}/activity-service"))

    return ChaosFault(start)


def contract_change(
    home: Home, versions: Sequence[Contract], put_in_cloud: Callable[[Contract], object]
) -> ChaosFault:
    """Put the next of `versions` in force in the cloud and on the device, which gets a broken file first."""
    turn = 0

    def start() -> None:
        nonlocal turn
        turn += 1
        contract = versions[turn % len(versions)]
        put_in_cloud(contract)
        home.reload_contract(contract.canonical[:-100])

    return ChaosFault(start, lambda: home.reload_contract(versions[turn % len(versions)].canonical))


def at_once(strike: Callable[[], int]) -> ChaosFault:
    """A fault that needs no repair; `strike` returns how many it struck."""

    def start() -> None:
        if not strike():
            raise NothingStruckError("nothing of that kind runs")

    return ChaosFault(start)


def faults_of(
    home: Home, sender: LoadSender, versions: Sequence[Contract], put_in_cloud: Callable[[Contract], object]
) -> dict[str, ChaosFault]:
    """Return every fault that is possible at `home`, by kind."""
    faults = {
        "forwarder-kill": kill(home.forwarder),
        "forwarder-stop": freeze(home.forwarder),
        "mosquitto-kill": kill(home.broker.child),
        "mosquitto-stop": freeze(home.broker.child),
        "line-cut": ChaosFault(home.link.cut, home.link.heal),
        "black-hole": impaired(home.link, Impairment(silent=True)),
        "slow-line": impaired(home.link, SLOW_LINE),
        "narrow-line": impaired(home.link, NARROW_LINE),
        "reconnect-storm": reconnect_storm(home.link),
        "malformed": malformed(sender),
        "contract-change": contract_change(home, versions, put_in_cloud),
    }
    if home.disk:
        faults["disk-full"] = ChaosFault(home.disk.fill, home.disk.empty)
    if home.clock:
        faults["clock-jump"] = clock_jump(home.clock.jump)
    return faults


def changed(contract: Contract, setting: str, value: str | int) -> Contract:
    """Return the contract with another `setting` of the uplink, and the same routes."""
    document = json.loads(contract.canonical)
    document["participants"]["device"]["outbox"][setting] = value
    return load_compiled(canonical_bytes(document), f"with another {setting}")


def with_order(contract: Contract, services: Sequence[str]) -> Contract:
    """Return the contract with the order of each sender kept in the inboxes of cloud `services`.

    Ordered inboxes are not packed.
    """
    document = json.loads(contract.canonical)
    for each in services:
        inbox = document["participants"][each]["inbox"]
        inbox["ordering"] = Ordering.SOURCE
        inbox.pop("events_per_message", None)
    return compile_contract(document, "with order")


class InjectionError(LocalError):
    """Fault `kind` at `home` could not start or heal because of `cause`."""

    def __init__(self, kind: str, home: str, cause: BaseException) -> None:
        self.kind, self.home = kind, home
        super().__init__(f"{kind} at {home}: {cause}")


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """Fault `kind` was at `home` from `began` to `ended` (Unix seconds; equal without a repair)."""

    kind: str
    home: str
    began: float
    ended: float


class Injector(Background):
    """Injects `faults`, by kind and home number, as `strikes` say, from the start of its `with` block on.

    If the block ends early, what is broken is healed first. `struck` has the faults that are over.
    """

    def __init__(
        self,
        strikes: Sequence[PlannedFault],
        homes: Sequence[str],
        faults: Mapping[tuple[str, int], ChaosFault],
    ) -> None:
        super().__init__("faults")
        self.struck: list[InjectedFault] = []
        self.failure: InjectionError | None = None
        self._homes = homes
        self._faults = faults
        self._steps = sorted(
            [(strike.at_s, False, strike) for strike in strikes]
            + [(strike.until_s, True, strike) for strike in strikes],
            key=lambda step: step[0],
        )
        self._began: dict[PlannedFault, float] = {}

    def check(self) -> None:
        """Raise `InjectionError` if a fault could not start or heal."""
        if self.failure:
            raise self.failure

    def join(self, *, early: bool = False) -> None:
        """Wait for the end of the last fault; `early`: no other is started. Raises `InjectionError`."""
        if early:
            self._ending.set()
        self._thread.join()
        self.check()

    def _run(self) -> None:
        start = monotonic()
        for at, is_end, strike in self._steps:
            stopped = self._ending.wait(max(0.0, start + at - monotonic()))
            try:
                if is_end and strike in self._began:
                    self._heal(strike)
                elif not is_end and not stopped:
                    self._start(strike)
            except Exception as error:  # noqa: BLE001 - raised where the run waits, with the fault's name
                home = self._homes[strike.home]
                self.failure = self.failure or InjectionError(strike.kind, home, error)

    def _start(self, strike: PlannedFault) -> None:
        fault, began = self._faults[strike.kind, strike.home], time()
        if fault.heal:
            self._began[strike] = began  # one that fails half way is healed, too
        with contextlib.suppress(NothingStruckError):
            fault.start()
            if not fault.heal:
                self.struck.append(InjectedFault(strike.kind, self._homes[strike.home], began, began))

    def _heal(self, strike: PlannedFault) -> None:
        began = self._began.pop(strike)
        heal = self._faults[strike.kind, strike.home].heal
        if heal:
            heal()
        self.struck.append(InjectedFault(strike.kind, self._homes[strike.home], began, time()))
