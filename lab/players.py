"""Plays the input through the services of the homes, as fast as they accept it, some of it malformed."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import BoundedSemaphore
from typing import Final

from lab.errors import LocalError
from lab.input.model import InputEvent
from lab.poison import Poison, poison
from lab.services import HomeServices

EVENTS_PER_POISON: Final = 500
LEAST_POISON: Final = 5
"""One malformed message follows so many events; a short run has at least so many in all."""

_QUEUED: Final = 200
"""Messages that may be queued for one home: a home that stands still can fall so far behind the others."""


class PlayerError(LocalError):
    """The home `home` could not send its messages because of `cause`."""

    def __init__(self, home: str, cause: BaseException) -> None:
        self.home, self.cause = home, cause
        super().__init__(f"{home} could not send: {cause}")


@dataclass(frozen=True, slots=True)
class HomeMessage:
    """A message that one service of a home sends."""

    service: str
    content: InputEvent | Poison


class Players:
    """Sends the messages of each home in order, from a thread of its own, with a queue between.

    The caller's thread deals the messages out in the order of the input, so that the homes go through time
    together. A service waits when its window is full, and a home that stands still must not stop the others.
    """

    def __init__(self, homes: Mapping[str, HomeServices]) -> None:
        self._homes = homes
        self._failure: PlayerError | None = None

    def play(
        self, events: Iterable[InputEvent], total: int, progress: Callable[[int, str], None] = lambda *_: None
    ) -> None:
        """Send all `events`, of which there are `total`; they may be without a receipt when this returns.

        `progress` gets the number of events dealt out, and the home, after each. Raises `PlayerError`.
        """
        senders = {home: ThreadPoolExecutor(1, f"player {home}") for home in self._homes}
        room = {home: BoundedSemaphore(_QUEUED) for home in self._homes}

        def send(home: str, message: HomeMessage) -> None:
            try:
                _send(self._homes[home], message)
            except Exception as error:  # noqa: BLE001 - raised by the dealer, with the home's name
                self._failure = self._failure or PlayerError(home, error)
            finally:
                room[home].release()

        done = 0
        try:
            for home, message in mixed(events, total):
                room[home].acquire()
                self._raise_failure()
                senders[home].submit(send, home, message)
                if isinstance(message.content, InputEvent):
                    done += 1
                    progress(done, home)
        except BaseException:
            for sender in senders.values():
                sender.shutdown(wait=False, cancel_futures=True)
            raise
        for sender in senders.values():
            sender.shutdown()
        self._raise_failure()

    def flush(self, timeout_seconds: float) -> None:
        """Wait until every home's forwarder has confirmed what it was sent. Raises `FlushTimeoutError`."""
        for home in self._homes.values():
            home.flush(timeout_seconds)

    def _raise_failure(self) -> None:
        if self._failure:
            raise self._failure from self._failure.cause


def mixed(events: Iterable[InputEvent], total: int) -> Iterator[tuple[str, HomeMessage]]:
    """Yield the `total` events with malformed messages among them, each with the home that sends it.

    A malformed message comes from the home and service of the event before it.
    """
    every = max(1, min(EVENTS_PER_POISON, total // LEAST_POISON))
    for number, event in enumerate(events, start=1):
        yield event.home, HomeMessage(event.service, event)
        if number % every == 0:
            yield event.home, HomeMessage(event.service, poison(number // every - 1, event.event.source))


def _send(services: HomeServices, message: HomeMessage) -> None:
    if isinstance(message.content, Poison):
        services.send_poison(message.service, message.content)
    else:
        services.send(message.service, message.content.event)
