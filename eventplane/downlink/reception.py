"""What a device does with an event that comes down, by what it holds of its key already."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from eventplane.contract import Downlink
from eventplane.downlink.wire import Incoming


class Verdict(StrEnum):
    """APPLY: store it, then answer `stored`. DUPLICATE: it is there, answer `stored` again.

    OLDER: something newer is there; drop it, answer `rejected`, reason `acknowledgements.OLDER`.
    """

    APPLY = "apply"
    DUPLICATE = "duplicate"
    OLDER = "older"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateVersion:
    """What a device remembers of a key: the last state, tombstones too, or the last of its commands."""

    reset: int
    version: int
    is_deleted: bool
    order: int
    sender: str
    source: str
    id: str


def state_version(incoming: Incoming) -> StateVersion:
    """What to remember of `incoming` once it is applied."""
    return StateVersion(
        reset=incoming.reset,
        version=incoming.version,
        is_deleted=incoming.is_deleted,
        order=incoming.order,
        sender=incoming.sender,
        source=incoming.source,
        id=incoming.id,
    )


def receive(before: StateVersion | None, incoming: Incoming) -> Verdict:
    """What to do with `incoming`, of whose key and kind the device holds `before`.

    What came after a reset of the key's versions is newer than all before it. Two states of one version are
    told apart as in the cloud: the tombstone is newer, then the greater id.
    """
    if before is None:
        return Verdict.APPLY
    if incoming.kind is Downlink.COMMAND:
        if incoming.order == before.order:
            return Verdict.DUPLICATE
        return Verdict.APPLY if incoming.order > before.order else Verdict.OLDER
    mine, offered = _rank(before), _rank(incoming)
    if offered == mine:
        return Verdict.DUPLICATE
    return Verdict.APPLY if offered > mine else Verdict.OLDER


def _rank(state: StateVersion | Incoming) -> tuple[int, int, bool, str, str, str]:
    return state.reset, state.version, state.is_deleted, state.id, state.source, state.sender
