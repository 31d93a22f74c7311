"""Receipts of the events that a reader in the cloud settled, for the archive: who handled what, and when.

They are sent before the queue is told to forget the events, so that a crash loses none: the events come
again, and so do their receipts. What cannot be sent is kept, since a pack or an order may hold events back
whose receipts went with those of others.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import cached_property
from itertools import islice
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.ledger import HandoverRecord, to_line
from eventplane.reader_receipts import SETTLED_BEFORE, is_asked
from eventplane.resource_names import RECEIPTS_SUFFIX, queue_name
from eventplane_client.aws import code_of
from eventplane_client.delivery import Delivery
from eventplane_client.system import System

_log = logging.getLogger(__name__)

MOST_BYTES: Final = 60 * 1024
"""Most bytes of one message. Amazon SQS bills each 64 KiB as a request; one event beyond it goes alone."""

MOST_KEPT: Final = 10_000
"""Most receipts that are kept when they cannot be sent; later events leave theirs when they come again. Ours:
some 5 MB."""

_NO_QUEUE: Final = frozenset(
    {"QueueDoesNotExist", "NonExistentQueue", "AccessDenied", "AccessDeniedException"}
)
"""What SQS says where a published contract asks for receipts, and the deployed one has no queue for them: its
policies do not allow to ask for one either."""


class Receipts:
    """Collects receipts of `participant` and sends them by `sqs`, a boto3 client, to its own queue."""

    def __init__(self, participant: str, environment: str, sqs: Any, system: System) -> None:
        self._participant = participant
        self._name = queue_name(environment, f"{participant}{RECEIPTS_SUFFIX}")
        self._sqs = sqs
        self._system = system
        self._lines: dict[tuple[str, str, str], str] = {}

    def add(self, settled: Delivery) -> None:
        """Collect a receipt of an event, if its router asked for one."""
        event, message = settled.event, settled.message
        if not is_asked(event.source, event.id, message.receipts):
            return
        key = _key(settled)
        if settled.reason == SETTLED_BEFORE and key in self._lines:
            return  # the one that could not be sent says more
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
        self._lines[key] = to_line(record)

    def withdraw(self, kept: Delivery) -> None:
        """Forget the receipt of an event that was not settled after all, unless it was sent."""
        self._lines.pop(_key(kept), None)

    def send(self) -> bool:
        """Send what is collected; False if that failed, and the events have to come again."""
        try:
            for body in _bodies(self._lines.values()):
                self._sqs.send_message(QueueUrl=self._url, MessageBody=body)
        except (ClientError, BotoCoreError) as error:
            if code_of(error).rpartition(".")[2] in _NO_QUEUE:
                _log.error(
                    "%s: %d receipts are lost: there is no queue %s, or no right to write to it; deploy the "
                    "contract that has `receipts`, and attach its policy: %s",
                    self._participant, len(self._lines), self._name, error,
                )  # fmt: skip
            else:
                text = "%s: %d receipts not written yet, so events come again: %s"
                _log.warning(text, self._participant, len(self._lines), error)
                self._lines = dict(islice(self._lines.items(), MOST_KEPT))
                return False
        self._lines.clear()
        return True

    @cached_property
    def _url(self) -> str:
        return str(self._sqs.get_queue_url(QueueName=self._name)["QueueUrl"])


def _key(settled: Delivery) -> tuple[str, str, str]:
    return settled.message.id, settled.event.source, settled.event.id


def _bodies(lines: Iterable[str]) -> list[str]:
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
