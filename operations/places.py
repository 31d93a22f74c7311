"""The places of dead letters, and the selection among them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from eventplane.cesql import CesqlParseError, parse
from eventplane.contract import Contract
from eventplane.contract import Place as PlaceOfRouter
from eventplane.dead_letter import Refusal, dead_letter
from eventplane.filters import Filter
from eventplane.router import Router
from operations.command import ChoiceError, say
from operations.errors import NoLetterInboxError
from operations.letters import Letter, read_letter
from operations.queues import DeadLetterQueue, PlaneQueues
from operations.reading import UNSEEN, Peek

LOOK: Final = 1_000
"""Most messages of one queue that are looked at: those beyond stay unread, and that is said."""


@dataclass(frozen=True, slots=True)
class LetterPlace:
    """A queue with letters: a dead-letter queue, or (`dead_letters` None) the inbox of dead-letter events.

    `title` is what people call it, `name` what AWS does; `channel` is what its messages were meant for.
    """

    title: str
    name: str
    url: str
    channel: str | None
    dead_letters: DeadLetterQueue | None


def place_of(queue: DeadLetterQueue) -> LetterPlace:
    """A dead-letter queue as a place."""
    return LetterPlace(queue.channel or queue.source, queue.name, queue.url, queue.channel, queue)


def inbox_place(contract: Contract, queues: PlaneQueues) -> LetterPlace:
    """The first inbox that gets dead-letter events by `contract`, as a place. Raises `NoLetterInboxError`."""
    sample = dead_letter(
        id="sample",
        source="/eventplane",
        time="1970-01-01T00:00:00Z",
        refusal=Refusal("sample", "sample"),
        channel=contract.device.outbox.address,
        original=b"",
        contract_version=contract.version,
    )
    addresses = [route.destination for route in Router(contract, PlaceOfRouter.CLOUD).route(sample)]
    for address in addresses:
        if url := queues.channel_urls.get(address):
            return LetterPlace(f"{address} (letters)", url.rsplit("/", 1)[1], url, address, None)
    raise NoLetterInboxError(addresses[0] if addresses else None)


@dataclass(frozen=True, slots=True)
class Choice:
    """The selected dead letters: the one called `id`, those that pass `filter`, or all."""

    id: str | None = None
    filter: Filter | None = None

    def takes(self, letter: Letter) -> bool:
        return (self.id is None or letter.is_called(self.id)) and (
            self.filter is None or letter.matches(self.filter)
        )

    @property
    def is_all(self) -> bool:
        return self.id is None and self.filter is None


def read_choice(id: str | None, expression: str | None) -> Choice:
    """The choice that a command line makes. Raises `ChoiceError` for an expression that does not parse."""
    if expression is None:
        return Choice(id)
    try:
        return Choice(id, parse(expression))
    except CesqlParseError as error:
        raise ChoiceError(f"--filter is no CESQL expression: {error}") from error


def waiting_letters(
    sqs: Any, place: LetterPlace, choice: Choice, more: Callable[[str], None] = say
) -> Iterator[Letter]:
    """The letters at `place` that are meant, of its first `LOOK` messages.

    If there are others, `more` gets a sentence about them, by default to tell the person.
    """
    with Peek(sqs, place.url) as reading:
        messages: Iterable[Any] = (each for page in reading.pages() for each in page)
        for count, message in enumerate(islice(messages, LOOK + 1)):
            if count == LOOK:
                more(f"{place.title}: only the first {LOOK} messages were looked at")
                return
            letter = read_letter(message, place.name, place.channel)
            if choice.takes(letter):
                yield letter
        if reading.unseen:
            more(f"{place.title}: {reading.unseen} messages were {UNSEEN}")
