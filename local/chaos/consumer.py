"""`python -m local.chaos.consumer FOLDER SERVICE=URL...`: the cloud services, in a process that can die.

Each service reads its inbox queue, writes down what came, and only then deletes it: what a killed reader had
in its hands comes again when the queue's visibility timeout is over.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from pathlib import Path
from time import sleep
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from local.chaos.arrivals import ArrivalWriter

_log = logging.getLogger(__name__)

_BATCH = 10
_LONG_POLL_S = 1
_PAUSE_S = 1

_READERS = 4
"""Of each service. An emulated queue answers the slower the more it holds, so a single reader that has once
fallen behind the routers never catches up."""


def read(sqs: Any, url: str, writer: ArrivalWriter) -> None:
    """Read one queue for ever, also past calls that fail: a cloud that is slow is no end of a service."""
    while True:
        try:
            _read_batch(sqs, url, writer)
        except (BotoCoreError, ClientError) as error:
            _log.warning("%s: %s", url, error)
            sleep(_PAUSE_S)


def _read_batch(sqs: Any, url: str, writer: ArrivalWriter) -> None:
    answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=_BATCH, WaitTimeSeconds=_LONG_POLL_S)
    if messages := answer.get("Messages", []):
        writer.write(message["Body"] for message in messages)
        entries = [
            {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]}
            for number, message in enumerate(messages)
        ]
        sqs.delete_message_batch(QueueUrl=url, Entries=entries)


def main() -> None:
    """Readers for each service. What else ends one, ends all: `local.chaos.restarter` starts it again."""
    folder = Path(sys.argv[1])
    for argument in sys.argv[2:]:
        service, _, url = argument.partition("=")
        writer = ArrivalWriter(folder / f"{service}.jsonl")
        for _ in range(_READERS):
            threading.Thread(target=_read_or_end, args=(url, writer), name=service, daemon=True).start()
    threading.Event().wait()


def _read_or_end(url: str, writer: ArrivalWriter) -> None:
    try:
        read(boto3.Session().client("sqs"), url, writer)  # the default session is no thread's
    finally:
        os._exit(1)


if __name__ == "__main__":
    main()
