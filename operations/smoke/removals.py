"""What a run has to remove again, in the order opposite to that in which it was made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.errors import EventPlaneError
from operations.cloud import explained


@dataclass(frozen=True, slots=True)
class Removal:
    """What was removed, in words; `problem` says why it was not, None where it was."""

    words: str
    problem: str | None

    def document(self) -> dict[str, str | None]:
        """The removal as JSON."""
        return {"what": self.words, "problem": self.problem}


class Removals:
    """The list of one run. Add a removal before what it removes is made, where its name is known."""

    def __init__(self) -> None:
        self._calls: list[tuple[str, Callable[[], object]]] = []

    def add(self, words: str, call: Callable[[], object]) -> None:
        """`call` removes what `words` name; it does nothing where there is nothing to remove."""
        self._calls.append((words, call))

    def run(self) -> Iterator[Removal]:
        """Remove everything, last first; what fails is reported, and the rest is removed."""
        while self._calls:
            words, call = self._calls.pop()
            try:
                call()
            except EventPlaneError as error:
                yield Removal(words, str(error))
            except (ClientError, BotoCoreError) as error:
                yield Removal(words, str(explained(error)))
            except Exception as error:  # noqa: BLE001 - a fault here must not leave the rest behind
                yield Removal(words, f"{type(error).__name__}: {error}; report this fault of the command")
            else:
                yield Removal(words, None)
