"""No schedule of up to six cuts locks a device out of a cloud that follows the registry's own rules."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from eventplane.device_record import Device, LifecycleState
from eventplane.topics import CLAIM_CLIENT_PREFIX, RENEWAL_CLIENT_PREFIX
from lab.benchmarks.power.cuts import in_memory
from parts.fleet.lifecycle import (
    DeniedError,
    RegistrationRequest,
    made,
    quarantined,
    registered,
    released,
    retired,
    seen,
)
from parts.provisioning import OfflineError, ProvisioningError, RejectedError
from parts.provisioning.exchange import Exchange, Keep
from parts.provisioning.renewal import MOST_TRIES, Pairs, Renewal, Renewed
from tests.parts.provisioning.test_renewal import NOW, certificate

MOST_CUTS = 6
THING, OWN = "home-1", "identity.pem"
NOW_MS = int(NOW.timestamp()) * 1_000


class PowerCutError(BaseException):
    """The power goes: nothing more is done."""


@cache
def text(number: int) -> str:
    """A certificate; only the first is old."""
    start = NOW - timedelta(days=0 if number else 400)
    return certificate(start, NOW + timedelta(days=9_000)).strip()


@cache
def id_of(pair: str) -> str:
    """The registry's id of the certificate in `pair`."""
    return next(f"c{each}" for each in range(1_000) if text(each) in pair)


@dataclass(frozen=True)
class State:
    """The device's files, what its process remembers, and what the cloud knows.

    `reports` are connections that the registry has not heard of.
    """

    files: dict[str, str]
    device: Device
    active: frozenset[str]
    reports: tuple[str, ...] = ()
    refusals: int = 0
    issued: int = 1

    @cached_property
    def key(self) -> str:
        """The same for states that differ in the numbers of their certificates only."""
        files = sorted((name, id_of(pair)) for name, pair in self.files.items())
        known = repr((files, replace(self.device, registrations=0), self.reports, self.refusals))
        known += str(sorted(each for each in self.active if f"'{each}'" in known))
        numbers = sorted(set(re.findall(r"'c(\d+)'", known)), key=int)
        return re.sub(r"'c(\d+)'", lambda found: f"<{numbers.index(found[1])}>", known)

    def reported(self) -> State:
        """The registry has heard of every connection."""
        device = self.device
        for each in self.reports:
            device = seen(device, each, NOW_MS)
        return replace(self, device=device, reports=())

    def toggled(self) -> State:
        """An operator quarantines the device, or releases it."""
        if self.device.state is LifecycleState.QUARANTINED:
            return replace(self, device=released(self.device, NOW_MS))
        return replace(self, device=quarantined(self.device, frozenset(), "lost", NOW_MS))

    def a_day_later(self) -> State:
        """What is replaced is deactivated, and the day's registrations are counted anew. The clock stays."""
        heard = self.reported()
        gone = heard.device.replaced
        device = replace(retired(heard.device, gone), day=0)
        return replace(heard, device=device, active=self.active - gone)


class Cloud:
    """The cloud of one attempt, in which the `cut`-th of all possible cuts happens; None: none."""

    def __init__(self, state: State, cut: int | None) -> None:
        self.state = state
        self.possible = 0
        self._cut = cut

    def can_be_cut(self, *cuts: type[BaseException]) -> None:
        """Raise the cut that happens here, if one does."""
        for each in cuts:
            self.possible += 1
            if self.possible == self._cut:
                raise each(THING, "a cut")

    def run(self, _exchange: Exchange, keep: Keep, pair: Path | None = None) -> None:
        asking = self._connect(pair) if pair else "claim"
        offered, issued = f"c{self.state.issued}", self.state.issued + 1
        self.state = replace(self.state, issued=issued)
        keep(text(issued - 1), "key")
        self.can_be_cut(OfflineError)
        client = (RENEWAL_CLIENT_PREFIX if pair else CLAIM_CLIENT_PREFIX) + THING
        # A device asks after some attempts only: meanwhile the registry has heard of its connections.
        state = self.state.reported()
        try:
            device = registered(state.device, RegistrationRequest(THING, client, asking, offered), NOW_MS)
        except DeniedError as error:
            self.can_be_cut(OfflineError)
            raise RejectedError("register", 403, "AccessDenied", error.refusal) from error
        self.state = replace(state, device=device, active=state.active | {offered})
        self.can_be_cut(OfflineError)

    def try_pair(self, pair: Path) -> None:
        own = self._connect(pair)
        if self.state.reports[-1:] != (own,):
            self.state = replace(self.state, reports=(*self.state.reports, own))
        self.can_be_cut(OfflineError)

    def accepts(self, pair: Path | None) -> bool:
        try:
            if pair:
                self._connect(pair)
            else:
                self.can_be_cut(OfflineError)
        except OfflineError:
            return False
        return True

    def _connect(self, pair: Path) -> str:
        self.can_be_cut(PowerCutError)
        own = id_of(pair.read_text())
        if own not in self.state.active or self.state.device.state is LifecycleState.QUARANTINED:
            raise OfflineError(THING, "bad certificate")
        self.can_be_cut(OfflineError)
        return own


_CLAIM = RegistrationRequest(THING, CLAIM_CLIENT_PREFIX + THING, "claim", "c0")
_MADE = made(THING, NOW_MS)
STARTS = {
    "claim": State({}, _MADE, frozenset()),
    "renewal": State(
        {OWN: text(0)}, seen(registered(_MADE, _CLAIM, NOW_MS), "c0", NOW_MS), frozenset({"c0"})
    ),
}


class Attempt(NamedTuple):
    """How an attempt ended, in which so many cuts were `possible`."""

    possible: int
    outcome: Renewed | None
    state: State


Attempting = Callable[..., Attempt]


@pytest.fixture
def attempt(monkeypatch: pytest.MonkeyPatch) -> Attempting:
    """Make one attempt in a state, with the cut of that number."""
    running: list[Cloud] = []
    known: dict[tuple[str, int | None], Attempt] = {}

    def watched(operation: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        for each in running:
            each.can_be_cut(PowerCutError)
        return operation(*arguments, **options)

    # No other operation changes the names that are found again.
    for name in ("replace", "unlink"):
        monkeypatch.setattr(os, name, partial(watched, getattr(os, name)))

    def make(folder: Path, state: State, cut: int | None) -> Attempt:
        for name, pair in state.files.items():
            (folder / name).write_text(pair)
        cloud = Cloud(state, cut)
        renewal = Renewal(Pairs(folder / OWN), cloud, "fleet", THING, 365 * 86_400.0, None)
        renewal.refusals = state.refusals
        outcome, refusals = None, 0  # its process has ended
        running.append(cloud)
        try:
            outcome = renewal.attempt(NOW.timestamp())
        except ProvisioningError:
            refusals = min(renewal.refusals, MOST_TRIES)
        except PowerCutError:
            pass
        running.clear()
        files = {each.name: each.read_text() for each in folder.iterdir() if each.suffix != ".unfinished"}
        return Attempt(cloud.possible, outcome, replace(cloud.state, files=files, refusals=refusals))

    def once(state: State, cut: int | None = None) -> Attempt:
        # States of one key go on in the same way.
        if (state.key, cut) not in known:
            with in_memory() as folder:
                known[state.key, cut] = make(folder, state, cut)
        return known[state.key, cut]

    return once


@pytest.mark.long
@pytest.mark.parametrize("start", STARTS)
def test_no_schedule_of_six_cuts_locks_a_device_out(attempt: Attempting, start: str) -> None:
    known: set[str] = set()
    waiting = [STARTS[start]]
    for cuts in range(MOST_CUTS + 1):
        new: list[State] = []
        while waiting:
            state = waiting.pop()
            if state.key not in known:
                known.add(state.key)
                new.append(state)
                waiting += [attempt(state).state, state.reported(), state.a_day_later(), state.toggled()]
        locked_out = [each for each in new if not comes_back(attempt, each)]
        assert not locked_out, f"{len(locked_out)} of {len(new)} states of {cuts} cuts: {locked_out[0]}"
        waiting = [
            attempt(state, cut).state for state in new for cut in range(1, attempt(state).possible + 1)
        ]


def comes_back(attempt: Attempting, state: State) -> bool:
    """Whether the device has its own certificate after three days without a cut."""
    if state.device.state is LifecycleState.QUARANTINED:
        state = state.toggled()
    for _ in range(2):
        state = state.a_day_later()
        for _ in range(MOST_TRIES + 1):
            done = attempt(state)
            state = done.state
            if done.outcome:
                break
    own = id_of(state.files[OWN]) if OWN in state.files else ""
    # The forwarder connects with it, if it can.
    heard = replace(state, reports=(own,) if own in state.active else ()).a_day_later()
    return own == heard.device.certificate and own in heard.active
