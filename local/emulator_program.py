"""Start the emulator with parts of it replaced by quicker ones that do the same.

It unpacks 2,000 files for each process of each function, a large part of the time in which a plane starts;
here they share them. For each receive and delete it works on every message of the queue, so that a long
backlog drains slowly; here it works on those that are meant.

`local.emulator` runs this file with the Python of .venv-emulator.
"""

# ruff: noqa: SLF001 - the emulator has no other way in

from __future__ import annotations

import hashlib
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterable
from itertools import islice, takewhile
from os import PathLike
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ministack.app import main  # type: ignore[import-not-found, unused-ignore]
from ministack.core import lambda_runtime  # type: ignore[import-not-found, unused-ignore]
from ministack.services import sqs  # type: ignore[import-not-found, unused-ignore]

UNPACKED = Path(tempfile.gettempdir()) / "unpacked"

Message = dict[str, Any]
Queue = dict[str, Any]

LONG = 1_000
"""Messages in a queue that is long."""

_lock = threading.Lock()
_receive, _sweep, _expire = sqs._collect_msgs, sqs._dlq_sweep, sqs._expire_retained


class SharedArchive(zipfile.ZipFile):
    """An archive of code, which is unpacked once, because no function writes to its code."""

    def extractall(
        self,
        path: str | PathLike[str] | None = None,
        members: Iterable[str | zipfile.ZipInfo] | None = None,
        pwd: bytes | None = None,
    ) -> None:
        """Replace the empty folder `path` by a link to the one folder with these files."""
        content = Path(self.filename or "").read_bytes()
        shared = UNPACKED / hashlib.sha256(content).hexdigest()[:32]
        with _lock:
            if not shared.exists():
                unfinished = shared.with_suffix(".unfinished")
                super().extractall(unfinished, members, pwd)
                unfinished.rename(shared)
        link = Path(path or "")
        link.rmdir()
        link.symlink_to(shared)


def receive(queue: Queue, most: int, visibility_s: int) -> list[Message]:
    """Receive up to `most` messages: the original prepares every message of the queue each time."""
    if not queue["is_fifo"]:
        now = time.time()
        visible = (each for each in queue["messages"] if each.get("visible_at", 0) <= now)
        queue = {**queue, "messages": list(islice(visible, most))}
    received: list[Message] = _receive(queue, most, visibility_s)
    return received


def sweep(queue: Queue) -> None:
    """Move what has no receives left to the dead-letter queue: the original copies the queue each time."""
    if queue["is_fifo"]:
        _sweep(queue)
        return
    # Receives take the first visible messages, so behind one that was never received none was.
    now = time.time()
    front = list(takewhile(lambda each: each["receive_count"] or each["visible_at"] > now, queue["messages"]))
    part = {**queue, "messages": front}
    _sweep(part)
    if len(part["messages"]) < len(front):
        queue["messages"][: len(front)] = part["messages"]


def expire(queue: Queue) -> None:
    """Drop what is beyond the retention: of a long queue only if the first message, the oldest, is."""
    first = {**queue, "messages": queue["messages"][:1]}
    _expire(first)
    if len(queue["messages"]) < LONG or not first["messages"]:
        _expire(queue)


def delete(data: dict[str, Any], url: str) -> dict[str, Any]:
    """Delete a batch of messages: the original copies the whole queue for each of them."""
    entries = data.get("Entries", [])
    sqs._validate_batch_entries(entries, "DeleteMessageBatchRequestEntry")
    messages = sqs._get_q(data.get("QueueUrl", url), "sqs:DeleteMessage")["messages"]
    wanted = {each.get("ReceiptHandle") for each in entries} - {None, ""}
    found: dict[str, int] = {}
    for place, each in enumerate(messages):
        if len(found) == len(wanted):
            break  # what was received is in front
        if each.get("receipt_handle") in wanted:
            found[each["receipt_handle"]] = place
    for place in sorted(found.values(), reverse=True):
        del messages[place]
    there = [each["Id"] for each in entries if each.get("ReceiptHandle") in found]
    invalid = {
        "Code": "ReceiptHandleIsInvalid",
        "Message": "The input receipt handle is invalid.",
        "SenderFault": True,
    }
    return {
        "Successful": [{"Id": each} for each in there],
        "Failed": [{"Id": each["Id"], **invalid} for each in entries if each["Id"] not in there],
    }


if __name__ == "__main__":
    sqs._collect_msgs, sqs._dlq_sweep, sqs._expire_retained = receive, sweep, expire
    sqs._HANDLERS["DeleteMessageBatch"] = delete
    lambda_runtime.zipfile = SimpleNamespace(**{**vars(zipfile), "ZipFile": SharedArchive})
    sys.exit(main())
