"""`python -m lab.chaos.consumer FOLDER SERVICE=URL...`: cloud services in a process to be killed.

Each service reads its inbox queue with the client library, which restores an order and leaves receipts. It
records the events, each copy, before they are deleted: what a killed reader had in flight is redelivered
after the visibility timeout.
"""

import logging
import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, Queue
from time import sleep
from typing import Final

import boto3

from eventplane_client.errors import NothingThereError, UnavailableError
from eventplane_client.inbox import Inbox
from eventplane_client.memory_filter import MemoryFilter
from eventplane_client.ports import Message, Mode
from eventplane_client.receipts import Receipts
from eventplane_client.sqs import SqsTransport
from eventplane_client.system import SYSTEM
from lab.chaos.arrivals import ArrivalWriter
from lab.deploy import ENVIRONMENT

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
