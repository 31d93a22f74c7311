"""The control of a run: how long it waits, when it stops, what it removes, and AWS's ids of its calls."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.errors import EventPlaneError
from operations.cloud import explained
from operations.command import say

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Turns the signals into `KeyboardInterrupt`, within `taken`."""

    def __init__(self) -> None:
        self._is_held = False
        self._is_removing = False
        self._is_pending = False

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Take over the signals for the block."""
        before = {each: signal.signal(each, self._receive) for each in _SIGNALS}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Interrupt after the block, not within: what it makes has to be noted first."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
        if self._is_pending:
            self._is_pending = False
            raise KeyboardInterrupt

    def start_removing(self) -> None:
        """Interrupt nothing from here on."""
        self._is_removing = True

    def _receive(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self._is_removing:
            say("still removing what the test has made; it ends by itself")
        elif self._is_held:
            self._is_pending = True
        else:
            raise KeyboardInterrupt


@dataclass(frozen=True, slots=True)
class Removal:
    """A removed thing in words; `problem` says why it was not removed, None where it was."""

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


class Requests:
    """Notes the calls of `session`, a `boto3.Session`; clients made before it are not noticed."""

    def __init__(self, session: Any) -> None:
        self._by_operation: dict[str, str] = {}
        self._is_started = False
        session.events.register("after-call", self._note)

    def start(self) -> dict[str, str]:
        """Return the ids from now on, by operation in the order of the last call of each.

        The first time also those before: by then the plane was found.
        """
        if self._is_started:
            self._by_operation = {}
        self._is_started = True
        return self._by_operation

    def _note(self, parsed: Any, model: Any, **_: Any) -> None:
        id = parsed.get("ResponseMetadata", {}).get("RequestId")
        if id:
            name = f"{model.service_model.service_name}:{model.name}"
            self._by_operation.pop(name, None)
            self._by_operation[name] = str(id)
