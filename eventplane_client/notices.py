"""The notices of a client to its program: a closed list. Without a listener they are logged.

`sender` is who sent the event, as the plane authenticated it (`str(event.sender)`); `source` and `id` are
what the event says of itself.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from eventplane.conversation.open_requests import Circuit
from eventplane.envelope import Envelope
from eventplane.names import EPOCH
from eventplane_client.ports import MessageFilter

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EpochChanged:
    """The device behind `source` lost its store: its epoch is `after` now, events of `before` may be lost."""

    sender: str
    source: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class SequenceGap:
    """Events `first` to `last` of a stream did not come in time: refused, expired, lost. Late ones still do.

    `sender` counted them in its `epoch` by `counter`: `inbox/priority/rule` (docs/reference/client.md#order).
    """

    sender: str
    epoch: str
    counter: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class InDoubt:
    """Handed out before a crash, and nobody knows whether it was handled. It was handed out again, or not."""

    sender: str
    source: str
    id: str
    again: bool


@dataclass(frozen=True, slots=True)
class StateCreated:
    """There was no state at `place`: a first start, or both copies were wiped."""

    place: str


@dataclass(frozen=True, slots=True)
class StateHealed:
    """One copy of the state, `place`, had `damage` and was made anew from the other; nothing is lost."""

    place: str
    damage: str


@dataclass(frozen=True, slots=True)
class StateLost:
    """Both copies of the state had `damage`. What the broker delivers again is handed out again."""

    place: str
    damage: str


@dataclass(frozen=True, slots=True)
class DeadLettered:
    """An event could not be handled within the channel's limit and is a dead letter now."""

    sender: str
    source: str
    id: str
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Refused:
    """An event that was sent without waiting (`Client.send`) was refused for `reason`.

    It is a dead letter, but for the reason `spool_full`: then the device has no room, and nothing stores it.
    """

    source: str
    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Expired:
    """An event expired while it waited in the inbox, and was not handed out."""

    sender: str
    source: str
    id: str


@dataclass(frozen=True, slots=True)
class Dropped:
    """The plane in memory dropped the oldest event of the inbox: by `reason` too many (`count`) or too old
    (`age`). What is no event has no names.
    """

    sender: str
    source: str
    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class PeerChanged:
    """Requests wait for `peer` no more (`open`), to see whether it is back (`half_open`), or again."""

    peer: str
    circuit: Circuit


Notice = (
    EpochChanged
    | SequenceGap
    | InDoubt
    | StateCreated
    | StateHealed
    | StateLost
    | DeadLettered
    | Refused
    | Expired
    | Dropped
    | PeerChanged
)

Listener = Callable[[Notice], None]


def log_notice(notice: Notice) -> None:
    """The default listener."""
    level = logging.INFO if isinstance(notice, StateCreated) else logging.WARNING
    _log.log(level, "%s", notice)


_MOST_SOURCES = 10_000


class EpochWatch:
    """Tells `on_notice` of each change; what was known before a restart is in the `filter`'s state."""

    def __init__(self, filter: MessageFilter | None, on_notice: Listener) -> None:
        self._filter = filter
        self._on_notice = on_notice
        self._known: OrderedDict[str, str] = OrderedDict()

    def see(self, event: Envelope) -> None:
        """Look at an event that is handed out."""
        epoch = event.attributes.get(EPOCH)
        sender, source, _ = event.key
        # Another sender's word says nothing of this one's device. No sender and no source has a line end.
        stream = f"{sender}\n{source}"
        if epoch is None or self._known.get(stream) == epoch:
            return
        before = self._known.get(stream)
        if self._filter:
            before = self._filter.epoch(stream, str(epoch)) or before
        self._known[stream] = str(epoch)
        self._known.move_to_end(stream)
        if len(self._known) > _MOST_SOURCES:
            self._known.popitem(last=False)
        if before is not None:
            self._on_notice(EpochChanged(sender, source, before, str(epoch)))
