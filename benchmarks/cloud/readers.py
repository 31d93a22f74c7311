"""Consumers that note when each event came: one reader an inbox, ten messages a call, deleted at once."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from time import monotonic_ns
from types import TracebackType
from typing import Any, Final, Self

from eventplane.sqs_binding import split
from local.demo.plane import Plane

_BATCH: Final = 10
_PATIENCE_S: Final = 120.0


class Readers:
    """Reads `inboxes` of `plane` while in its `with` block, through a client of its own for each.

    `came` has, by inbox, when each event's id was first received (`time.monotonic_ns`). `client` makes an SQS
    client; another one may count what it is asked.
    """

    def __init__(
        self, plane: Plane, inboxes: Iterable[str], client: Callable[[], Any] | None = None, wait_s: int = 1
    ) -> None:
        self.came: dict[str, dict[str, int]] = {inbox: {} for inbox in inboxes}
        self._plane = plane
        self._client = client or (lambda: plane.cloud.client("sqs"))
        self._wait_s = wait_s
        self._tick = threading.Condition()
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(each,), daemon=True) for each in self.came]

    def __enter__(self) -> Self:
        for each in self._threads:
            each.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        for each in self._threads:
            each.join()

    def wait_for(self, number: int) -> int:
        """Wait until every inbox has received `number` events; when the last came.

        It gives up when nothing has come for two minutes.
        """
        with self._tick:
            least = -1
            while (now := self._least()) < number:
                if now == least:
                    raise SystemExit(f"{number - now} of {number} events did not arrive; see the run's logs")
                least = now
                self._tick.wait_for(lambda: self._least() > least, _PATIENCE_S)  # noqa: B023 - asked at once
            return max(max(each.values(), default=0) for each in self.came.values())

    def delays(self, inbox: str, sent: Mapping[str, int]) -> list[int]:
        """Nanoseconds from the time `sent` of each id until it came to `inbox`; waits until all have."""
        came = self.came[inbox]
        with self._tick:
            self._tick.wait_for(lambda: sent.keys() <= came.keys(), _PATIENCE_S)
            if missing := sent.keys() - came.keys():
                raise SystemExit(f"{len(missing)} events did not arrive in {inbox}; see the run's logs")
            return [came[id] - time for id, time in sent.items()]

    def _least(self) -> int:
        return min(len(each) for each in self.came.values())

    def _run(self, inbox: str) -> None:
        sqs, url = self._client(), self._plane.inboxes[inbox]
        while not self._stopping.is_set():
            answer = sqs.receive_message(
                QueueUrl=url, MaxNumberOfMessages=_BATCH, WaitTimeSeconds=self._wait_s
            )
            now = monotonic_ns()
            messages = answer.get("Messages", [])
            if not messages:
                continue
            with self._tick:
                for message in messages:
                    for text in split(message["Body"]):
                        self.came[inbox].setdefault(json.loads(text)["id"], now)
                self._tick.notify_all()
            entries = [
                {"Id": str(at), "ReceiptHandle": each["ReceiptHandle"]} for at, each in enumerate(messages)
            ]
            sqs.delete_message_batch(QueueUrl=url, Entries=entries)
