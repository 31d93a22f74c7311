"""The questions of a service that have no answer yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from eventplane_client.system import SYSTEM, System

_ID_BYTES = 8


class _Answer(Protocol):
    @property
    def id(self) -> str: ...


Asked = TypeVar("Asked")
Answer = TypeVar("Answer", bound=_Answer)


class OpenQuestions(Generic[Asked, Answer]):
    """Questions of one kind, sent to `topic` every `repeat_s` seconds until answered. Thread-safe.

    `write` returns the payload of a question with its id, `read` the answer in a payload. All times are
    monotonic seconds.
    """

    def __init__(
        self,
        topic: str,
        repeat_s: float,
        write: Callable[[str, Asked], bytes],
        read: Callable[[bytes], Answer],
        system: System = SYSTEM,
    ) -> None:
        self.topic = topic
        self._repeat_s = repeat_s
        self._write = write
        self._read = read
        self._changed = system.condition()
        self._random_bytes = system.random_bytes
        self._open: dict[str, tuple[bytes, float]] = {}  # payload, and when it is due
        self._answers: dict[str, Answer] = {}
        self._closed = False

    def ask(self, about: Asked) -> str:
        """Add a question and return its id."""
        id = self._random_bytes(_ID_BYTES).hex()
        payload = self._write(id, about)
        with self._changed:
            self._open[id] = payload, 0.0
        return id

    def wait_answer(self, id: str, timeout_s: float) -> Answer | None:
        """Wait for the answer to question `id`; None after `timeout_s` seconds, or if closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or id in self._answers, timeout_s)
            self._open.pop(id, None)
            return self._answers.pop(id, None)

    def due(self, now: float) -> list[bytes]:
        """Return the payloads to send now."""
        with self._changed:
            ready = {id: payload for id, (payload, at) in self._open.items() if at <= now}
            self._open.update((id, (payload, now + self._repeat_s)) for id, payload in ready.items())
            return list(ready.values())

    def deadline(self) -> float | None:
        """Return when `due` returns the next payload, None for never."""
        with self._changed:
            return min((at for _, at in self._open.values()), default=None)

    def resend(self) -> None:
        """Make all questions due again, for a new connection."""
        with self._changed:
            self._open = {id: (payload, 0.0) for id, (payload, _) in self._open.items()}

    def take_answer(self, payload: bytes) -> None:
        """Take an answer; ignore it if nobody waits for it. Raises `QuestionError`."""
        answer = self._read(payload)
        with self._changed:
            if self._open.pop(answer.id, None) is not None:
                self._answers[answer.id] = answer
                self._changed.notify_all()

    def close(self) -> None:
        """Wake the threads that wait."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
