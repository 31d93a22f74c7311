"""The queue between the network threads (and signal handlers) and a loop, and the messages in it.

Every message about a connection carries its `generation`, which counts the connections of a link. MQTT
packet ids start again with each connection: without the generation a late acknowledgement would end the wrong
publish.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from eventplane.contract import Contract

Item = TypeVar("Item")

DRAIN_LIMIT = 1_000
"""Most messages of one batch. Bounds the length of a commit and of the receipts message that follows it."""


class LinkName(StrEnum):
    """An MQTT session: the first and the urgent one at the home's broker, and the one at the cloud's."""

    LOCAL = "local"
    URGENT = "urgent"
    CLOUD = "cloud"


@dataclass(frozen=True, slots=True)
class Connected:
    """The connection is up and its subscriptions are confirmed."""

    link: LinkName
    generation: int


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection ended or could not be made. Exactly one for each generation."""

    link: LinkName
    generation: int
    reason: str


@dataclass(frozen=True, slots=True)
class Received:
    """A message that waits for our acknowledgement; `mid` is 0 at QoS 0, which needs none.

    `retained`: the broker kept it from before we subscribed.
    """

    link: LinkName
    generation: int
    mid: int
    topic: str
    payload: bytes
    retained: bool = False


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The broker's answer to our publish `mid`: accepted, or refused for the reason `failure`."""

    link: LinkName
    generation: int
    mid: int
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """Shut down in good order."""


@dataclass(frozen=True, slots=True)
class Reload:
    """Use another contract from now on; `image` is the device image's contract (None: unchanged)."""

    contract: Contract
    image: Contract | None = None


Message = Connected | Disconnected | Received | Acknowledged | Reload | Stop


class Mailbox(Generic[Item]):
    """Thread-safe; `put` also from a signal handler, because `SimpleQueue.put` is reentrant."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Item] = SimpleQueue()

    def put(self, item: Item) -> None:
        """Add an item; never waits."""
        self._queue.put(item)

    def wait(self, timeout_s: float | None) -> list[Item]:
        """Return up to `DRAIN_LIMIT` items; wait up to `timeout_s` seconds (None: for ever) for the first."""
        items: list[Item] = []
        try:
            items.append(self._queue.get(timeout=timeout_s))
            while len(items) < DRAIN_LIMIT:
                items.append(self._queue.get_nowait())
        except Empty:
            pass
        return items
