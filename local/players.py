"""Plays the input through the homes' services, as fast as they take it, with malformed messages mixed in."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, Queue
from typing import Final

from local.errors import LocalError
from local.input import InputEvent
from local.poison import Poison, poison
from local.services import HomeServices

EVENTS_PER_POISON: Final = 500
LEAST_POISON: Final = 5
"""One malformed message is mixed in after so many events, and in a short run at least so many in all."""

_QUEUED: Final = 200
"""How many messages may wait for one home: so far can a home that stands still fall behind the others."""


class PlayerError(LocalError):
    """A home could not send its messages. `home` says which; the cause says why."""

    def __init__(self, home: str, cause: BaseException) -> None:
        self.home, self.cause = home, cause
        super().__init__(f"{home} could not send: {cause}")


@dataclass(frozen=True, slots=True)
class Message:
    """What one service of a home shall send."""

    service: str
    content: InputEvent | Poison


class Players:
    """One player for each home: a thread that puts the home's messages into its services, in order.

    The caller's thread deals the messages out in the order of the input, so the homes go through time
    together: none is further behind than its queue and its service's window are long. A thread a home,
    because a service waits when its window is full, and a home that stands still must not stop the others.
    """

    def __init__(self, homes: Mapping[str, HomeServices]) -> None:
        self._homes = homes
        self._queues: dict[str, Queue[Message | None]] = {home: Queue(_QUEUED) for home in homes}
        self._failures: dict[str, BaseException] = {}

    def play(
        self, events: Iterable[InputEvent], total: int, progress: Callable[[int], None] = lambda _: None
    ) -> None:
        """Send all `events`, of which there are `total`; returns when each stands in its service's window.

        `progress` is told how many events have been dealt out, after each. What remains is `flush`. Raises
        `PlayerError`.
        """
        threads = [
            threading.Thread(target=self._play_home, args=[home], name=f"player {home}", daemon=True)
            for home in self._homes
        ]
        for thread in threads:
            thread.start()
        try:
            self._deal(events, total, progress)
        except BaseException:
            # Nobody waits for the players then: each ends after the message in its hands.
            for queue in self._queues.values():
                _clear(queue)
            raise
        finally:
            for queue in self._queues.values():
                queue.put(None)
        for thread in threads:
            thread.join()
        self._raise_failure()

    def flush(self, timeout_seconds: float) -> None:
        """Wait until every home's forwarder has confirmed what it was sent. Raises `FlushTimeoutError`."""
        for home in self._homes.values():
            home.flush(timeout_seconds)

    def _deal(self, events: Iterable[InputEvent], total: int, progress: Callable[[int], None]) -> None:
        done = 0
        for home, message in mixed(events, total):
            self._queues[home].put(message)
            self._raise_failure()
            if isinstance(message.content, InputEvent):
                done += 1
                progress(done)

    def _play_home(self, home: str) -> None:
        queue, services = self._queues[home], self._homes[home]
        while (message := queue.get()) is not None:
            # After a failure the queue is still emptied, or the dealer would wait for ever.
            if home not in self._failures:
                try:
                    _send(services, message)
                except Exception as error:  # noqa: BLE001 - raised by the dealer, with the home's name
                    self._failures[home] = error

    def _raise_failure(self) -> None:
        for home, failure in self._failures.items():
            raise PlayerError(home, failure) from failure


def mixed(events: Iterable[InputEvent], total: int) -> Iterator[tuple[str, Message]]:
    """The `total` events with malformed messages among them, each with the home that sends it.

    A malformed message comes from the home and service of the event before it.
    """
    every = max(1, min(EVENTS_PER_POISON, total // LEAST_POISON))
    for number, event in enumerate(events, start=1):
        yield event.home, Message(event.service, event)
        if number % every == 0:
            yield event.home, Message(event.service, poison(number // every - 1, event.event.source))


def _clear(queue: Queue[Message | None]) -> None:
    with suppress(Empty):
        while True:
            queue.get_nowait()


def _send(services: HomeServices, message: Message) -> None:
    if isinstance(message.content, Poison):
        services.send_poison(message.service, message.content)
    else:
        services.send(message.service, message.content.event)
