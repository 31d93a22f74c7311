"""Carries a schedule out, one step after the other, and notes when each fault really began and ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic, time

from local.background import Background
from local.chaos.faults import Fault, NothingStruckError
from local.chaos.schedule import Strike
from local.errors import LocalError


class InjectionError(LocalError):
    """A fault could not be begun or ended. `kind` and `home` say which; the cause says why."""

    def __init__(self, kind: str, home: str, cause: BaseException) -> None:
        self.kind, self.home = kind, home
        super().__init__(f"{kind} at {home}: {cause}")


@dataclass(frozen=True, slots=True)
class Struck:
    """Fault `kind` at `home` from `began` to `ended` (Unix seconds), which are one of a fault of a moment."""

    kind: str
    home: str
    began: float
    ended: float


class Injector(Background):
    """Strikes as `strikes` say, counted from the start of its `with` block; `faults` by kind and home number.

    When the block ends early, what is broken is mended first. `struck` has what is over, and nothing that
    found nothing to strike.
    """

    def __init__(
        self, strikes: Sequence[Strike], homes: Sequence[str], faults: Mapping[tuple[str, int], Fault]
    ) -> None:
        super().__init__("faults")
        self.struck: list[Struck] = []
        self.failure: InjectionError | None = None
        self._homes = homes
        self._faults = faults
        self._steps = sorted(
            [(strike.at_s, False, strike) for strike in strikes]
            + [(strike.until_s, True, strike) for strike in strikes],
            key=lambda step: step[0],
        )
        self._began: dict[Strike, float] = {}

    def check(self) -> None:
        """Raises `InjectionError` when a fault could not be begun or ended."""
        if self.failure:
            raise self.failure

    def join(self, *, early: bool = False) -> None:
        """Wait for the end of the last fault; `early`: no other is begun. Raises `InjectionError`."""
        if early:
            self._ending.set()
        self._thread.join()
        self.check()

    def _run(self) -> None:
        start = monotonic()
        for at, is_end, strike in self._steps:
            stopped = self._ending.wait(max(0.0, start + at - monotonic()))
            if is_end and strike in self._began:
                self._do(strike, self._heal)
            elif not is_end and not stopped:
                self._do(strike, self._start)

    def _start(self, strike: Strike, fault: Fault) -> None:
        began = time()
        if fault.is_lasting:
            self._began[strike] = began  # also what broke half way is mended
        with suppress(NothingStruckError):
            fault.start()
            if not fault.is_lasting:
                self._note(strike, began, began)

    def _heal(self, strike: Strike, fault: Fault) -> None:
        began = self._began.pop(strike)
        fault.heal()
        self._note(strike, began, time())

    def _note(self, strike: Strike, began: float, ended: float) -> None:
        self.struck.append(Struck(strike.kind, self._homes[strike.home], began, ended))

    def _do(self, strike: Strike, step: Callable[[Strike, Fault], None]) -> None:
        try:
            step(strike, self._faults[strike.kind, strike.home])
        except Exception as error:  # noqa: BLE001 - raised where the run waits, with the fault's name
            self.failure = self.failure or InjectionError(strike.kind, self._homes[strike.home], error)
