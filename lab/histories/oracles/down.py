"""The newest state wins, no command is lost, and the device says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from eventplane.device_reports import DEVICE_CONTRACT
from lab.histories.oracles.finding import OracleFinding

if TYPE_CHECKING:
    from lab.histories.history import History


def judged(history: History) -> Iterator[OracleFinding]:
    """Look at each home's newest state, and at all messages."""
    newest: dict[str, int] = {}
    for _, thing, kind, number in history.desired:
        if "threshold" in kind:
            newest[thing] = max(number, newest.get(thing, 0))
        elif kind != DEVICE_CONTRACT and not _handled(history, thing, "voice-service", number):
            yield OracleFinding("a command is lost", f"down-{number} to {thing}")
    for thing, number in newest.items():
        if not _handled(history, thing, "health-service", number):
            yield OracleFinding("the newest state is not there", f"down-{number} to {thing}")
        elif (held := history.held.get(thing)) is None or held.state_version.version != number:
            yield OracleFinding("a device holds an older state", f"{thing}: {held and held.state_version}")
    yield from _following(history)
    for item in history.cloud.unacknowledged():
        yield OracleFinding("what is desired is not acknowledged", f"{item.thing} {item.key}: {item.state}")


def _following(history: History) -> Iterator[OracleFinding]:
    for thing, contract in history.contracts.items():
        if (followed := history.homes[thing].contracts[-1][1].version) != contract.version:
            yield OracleFinding("a home follows an older contract", f"{thing}: {followed}")
    for thing, home in history.homes.items():
        for key, versions in home.states.items():
            if versions != sorted(versions):
                yield OracleFinding("a device goes back to an older state", f"{thing} {key}: {versions}")


def _handled(history: History, thing: str, service: str, number: int) -> bool:
    return any(id == f"down-{number}" for *_, id in history.homes[thing].services[service].handled)
