"""Receipts of the events that a reader in the cloud settled, for the archive: who handled what, and when.

They are sent before the queue is told to forget the events, so that a crash loses none: the events come
again, and so do their receipts.
"""

from __future__ import annotations

import logging
from functools import cached_property
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.ledger import HandoverRecord, to_line
from eventplane.reader_receipts import is_asked
from eventplane.resource_names import RECEIPTS_SUFFIX, queue_name
from eventplane_client.aws import code_of
from eventplane_client.delivery import Delivery
from eventplane_client.system import System

_log = logging.getLogger(__name__)

MOST_BYTES: Final = 60 * 1024
"""Most bytes of one message. Amazon SQS bills each 64 KiB as a request; one event beyond it goes alone."""

_NO_QUEUE: Final = frozenset({"QueueDoesNotExist", "NonExistentQueue"})
"""What SQS says where a published contract asks for receipts, and the deployed one has no queue for them."""


class Receipts:
    """Collects receipts of `participant` and sends them by `sqs`, a boto3 client, to its own queue."""

    def __init__(self, participant: str, environment: str, sqs: Any, system: System) -> None:
        self._participant = participant
        self._name = queue_name(environment, f"{participant}{RECEIPTS_SUFFIX}")
        self._sqs = sqs
        self._system = system
        self._lines: list[str] = []

    def add(self, settled: Delivery) -> None:
        """Collect a receipt of an event, if its router asked for one."""
        event, message = settled.event, settled.message
        if not is_asked(event.source, event.id, message.receipts):
            return
        sent_ms, now_ms = message.sent_at_ms or 0, self._system.now_ms()
        if message.present_ms is not None:
            # By the queue's clock: that of this machine may be wrong.
            now_ms = message.present_ms + round(1_000 * (self._system.monotonic() - settled.received_s))
        record = HandoverRecord(
            decided_at_ms=max(sent_ms, now_ms),
            entered_at_ms=sent_ms,
            channel=f"{self._participant}.inbox",
            contract_version=message.contract,
            source=event.source,
            id=event.id,
            type=event.type,
            outcome=settled.outcome,
            reason=settled.reason,
            status=None,
            attempt=message.attempt,
            message_id=message.id,
            route=message.route,
            sender=str(event.sender),
        )
        self._lines.append(to_line(record))

    def send(self) -> bool:
        """Send what is collected; False if that failed, and the events have to come again."""
        lines, self._lines = self._lines, []
        try:
            for body in _bodies(lines):
                self._sqs.send_message(QueueUrl=self._url, MessageBody=body)
        except (ClientError, BotoCoreError) as error:
            if code_of(error).rpartition(".")[2] in _NO_QUEUE:
                _log.error(
                    "%s: %d receipts are lost: there is no queue %s; deploy the contract that has `receipts`",
                    self._participant, len(lines), self._name,
                )  # fmt: skip
                return True
            _log.warning(
                "%s: no receipts written, so %d events come again: %s", self._participant, len(lines), error
            )
            return False
        return True

    @cached_property
    def _url(self) -> str:
        return str(self._sqs.get_queue_url(QueueName=self._name)["QueueUrl"])


def _bodies(lines: list[str]) -> list[str]:
    """Join the lines to texts of up to `MOST_BYTES`."""
    bodies: list[list[str]] = []
    size = MOST_BYTES
    for line in lines:
        bytes_ = len(line.encode()) + 1
        if size + bytes_ > MOST_BYTES:
            bodies.append([])
            size = 0
        bodies[-1].append(line)
        size += bytes_
    return ["\n".join(each) for each in bodies]
