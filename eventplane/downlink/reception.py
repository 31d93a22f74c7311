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
class Held:
    """What a device remembers of a key: the last state, tombstones too, or the last of its commands."""

    version: int
    is_deleted: bool
    order: int
    source: str
    id: str


def held(incoming: Incoming) -> Held:
    """What to remember of `incoming` once it is applied."""
    return Held(
        version=incoming.version,
        is_deleted=incoming.is_deleted,
        order=incoming.order,
        source=incoming.source,
        id=incoming.id,
    )


def receive(before: Held | None, incoming: Incoming) -> Verdict:
    """What to do with `incoming`, of whose key and kind the device holds `before`.

    Two states of one version are told apart as in the cloud: the tombstone is newer, then the greater id.
    """
    if before is None:
        return Verdict.APPLY
    if incoming.kind is Downlink.COMMAND:
        if incoming.order == before.order:
            return Verdict.DUPLICATE
        return Verdict.APPLY if incoming.order > before.order else Verdict.OLDER
    mine = (before.version, before.is_deleted, before.id, before.source)
    offered = (incoming.version, incoming.is_deleted, incoming.id, incoming.source)
    if offered == mine:
        return Verdict.DUPLICATE
    return Verdict.APPLY if offered > mine else Verdict.OLDER
