"""A consumer in a chaos run, and its record of arrivals, kept before it acknowledges."""

import json
import logging
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from queue import Empty, Queue
from time import sleep
from typing import Final

import boto3

from eventplane_client.errors import NothingThereError, UnavailableError
from eventplane_client.inbox import Inbox
from eventplane_client.memory_duplicates import MemoryFilter
from eventplane_client.ports import Message, Mode
from eventplane_client.receipts import Receipts
from eventplane_client.sqs import SqsTransport
from eventplane_client.system import SYSTEM
from lab.cloud import ENVIRONMENT
from lab.consumers import identify
from lab.oracle import Arrived, Key

_LINE_END: Final = b"\n"


class ArrivalWriter:
    """Appends to the file of one service. A torn line of a killed predecessor is cut off."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        _cut_torn(self._file)

    def write(self, texts: Iterable[str]) -> None:
        """Record events that arrived now."""
        now = time.time()
        lines = [json.dumps([now, *identify(text)], ensure_ascii=False).encode() for text in texts]
        os.write(self._file, b"".join(line + _LINE_END for line in lines))


class Arrivals:
    """The arrivals of one service, as far as its files were read.

    `first` has when each event first arrived (Unix seconds), in that order; `again` counts the duplicates of
    each; `reports` are those whose number cannot be known.
    """

    def __init__(self, *paths: Path) -> None:
        self.first: dict[Key, float] = {}
        self.reports: dict[Key, float] = {}
        self.again: Counter[Key] = Counter()
        self._read = dict.fromkeys(paths, 0)

    def refresh(self) -> None:
        """Read what was appended since."""
        for path in self._read:
            if path.exists():
                self._refresh(path)

    @property
    def duplicates(self) -> int:
        """The number of duplicate deliveries."""
        return self.again.total()

    @property
    def arrived(self) -> Arrived:
        """Return what arrived, for the oracle."""
        return Arrived(self.first.keys(), self.duplicates, self.reports.keys())

    def _refresh(self, path: Path) -> None:
        with path.open("rb") as file:
            file.seek(self._read[path])
            for line in file:
                if not line.endswith(_LINE_END):
                    return  # torn, or still being written
                self._read[path] += len(line)
                self._count(line)

    def _count(self, line: bytes) -> None:
        at, (first, second), is_report = json.loads(line)
        counted = self.reports if is_report else self.first
        key = first, second
        if key in counted:
            self.again[key] += 1
        else:
            counted[key] = at


def _cut_torn(file: int) -> None:
    size = os.fstat(file).st_size
    if not size:
        return
    tail = os.pread(file, min(size, 1 << 20), max(0, size - (1 << 20)))
    os.ftruncate(file, size - len(tail) + tail.rfind(_LINE_END) + 1)


_log = logging.getLogger(__name__)

_BATCH = 10
_LONG_POLL_S = 1
_PAUSE_S = 1

_MANY: Final = 100_000
"""Events that are held for their order: all that a killed router may delay (SQS: 120,000 in flight)."""

_GAP_S: Final = 3_600.0
"""How long an event waits for those before it: longer than a redelivery takes on a slow machine."""

_READERS = 4
"""Threads that receive, and that delete, for each service. An emulated queue is the slower the more it holds,
so a single one could not catch up with the routers."""


class _Prefetched(SqsTransport):
    """Receives and deletes in several threads at once, for one reader.

    Events held for their order need no extension: the queue hides them for long enough. What a killed reader
    had not deleted yet is redelivered.
    """

    def __init__(self, service: str, url: str) -> None:
        sqs = boto3.Session().client("sqs")
        receipts = Receipts(service, ENVIRONMENT, sqs, SYSTEM)
        super().__init__(
            service, sqs, inbox=url, outbox="", visibility_s=0, max_receives=_MANY, receipts=receipts
        )
        self.visibility_s = None
        self._fetched: Queue[list[Message]] = Queue(_READERS)
        self._handled: Queue[list[Message]] = Queue()
        for work in (self._fetch, self._delete) * _READERS:
            threading.Thread(target=_or_end, args=(work, service, url), daemon=True).start()

    def receive(self, most: int, timeout_s: float) -> list[Message]:  # noqa: ARG002 (as many as come)
        try:
            return self._fetched.get(timeout=timeout_s)
        except Empty:
            return []

    def acknowledge(self, messages: Sequence[Message], *, refused: str | None = None) -> list[Message]:  # noqa: ARG002
        if self.receipts and not self.receipts.send():
            return list(messages)
        self._handled.put(list(messages))
        return []

    def _delete(self, service: str, url: str) -> None:
        queue = _queue(service, url)
        while True:
            queue.acknowledge(self._handled.get())

    def _fetch(self, service: str, url: str) -> None:
        queue = _queue(service, url)
        while True:
            try:
                if found := queue.receive(_BATCH, _LONG_POLL_S):
                    self._fetched.put(found)
            except UnavailableError as error:
                _log.warning("%s: %s", url, error)
                sleep(_PAUSE_S)


def _queue(service: str, url: str) -> SqsTransport:
    session = boto3.Session().client("sqs")  # the default session is no thread's
    return SqsTransport(service, session, inbox=url, outbox="", visibility_s=0, max_receives=_MANY)


def read(service: str, url: str, writer: ArrivalWriter) -> None:
    """Read one queue for ever."""
    with Inbox(
        service,
        _Prefetched(service, url),
        MemoryFilter(),
        mode=Mode.AT_LEAST_ONCE,
        gap_timeout_s=_GAP_S,
        most_held=_MANY,
    ) as inbox:
        while True:
            try:
                events = inbox.get_batch(_BATCH, _LONG_POLL_S)
            except NothingThereError:
                continue
            writer.write(each.json for each in events)


def main() -> None:
    """A reader for each service. What else ends one, ends all: `lab.process` starts it again."""
    folder = Path(sys.argv[1])
    for argument in sys.argv[2:]:
        service, _, url = argument.partition("=")
        work = (read, service, url, ArrivalWriter(folder / f"{service}.jsonl"))
        threading.Thread(target=_or_end, args=work, name=service, daemon=True).start()
    threading.Event().wait()


def _or_end(work: Callable[..., None], *arguments: object) -> None:
    try:
        work(*arguments)
    finally:
        os._exit(1)


if __name__ == "__main__":
    main()
