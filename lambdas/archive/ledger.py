"""Write what routers recorded: one object for the lines of a batch, and the contracts that they name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.function_settings import LedgerWriterSettings
from eventplane.ledger import LEDGER, LedgerMessage, LedgerMessageError, parse_ledger_text
from lambdas.archive.receipts import ReceiptWriter
from lambdas.common.archive import Archiver
from lambdas.common.aws import WORST_CALL_MS, client
from lambdas.common.log import logger
from lambdas.common.metrics import Count, count
from lambdas.common.queue import Invocation, QueueMessage
from lambdas.common.queue_function import QueueReader, queue_function
from lambdas.common.system import Clock, random_bytes, system_clock

RESERVE_MS: Final = 3 * WORST_CALL_MS
"""No message is read, and no contract filed, with less time left, milliseconds: the object, the list of what
was written and the answer to the queue follow."""


class LedgerWriter:
    """Writes the messages of the ledger's queue to `archive`."""

    def __init__(self, *, archive: Archiver, clock: Clock) -> None:
        self._archive = archive
        self._clock = clock

    def process(self, messages: Sequence[QueueMessage], invocation: Invocation) -> frozenset[str]:
        """Archive `messages`; return the ids of those that have to come again.

        A contract is filed before the lines that came with it. A message redelivered with others
        is written twice: readers take each row once.
        """
        held: set[str] = set()
        lines = self._lines(messages, held, invocation)
        safe = self._archive.put_messages(LEDGER, held, self._clock(), lines)
        failed = frozenset(message.id for message in messages) - safe
        count(Count.ARCHIVED, len(safe))
        logger.info("archived", messages=len(safe), failed=len(failed))
        return failed

    def _lines(
        self, messages: Iterable[QueueMessage], held: set[str], invocation: Invocation
    ) -> Iterator[str]:
        """The lines of `messages`, one message in memory at a time; `held` takes the ids of those read."""
        for message in messages:
            if invocation.remaining_ms() < RESERVE_MS:
                logger.warning("no time left; the rest of the batch comes again", messages=len(held))
                return
            if (read := self._read(message, invocation)) is not None:
                held.add(message.id)
                yield from read.lines

    def _read(self, message: QueueMessage, invocation: Invocation) -> LedgerMessage | None:
        """Return what `message` holds, once its contracts are in the archive."""
        try:
            held = parse_ledger_text(message.body)
        except LedgerMessageError:
            logger.exception("a message of the ledger cannot be read", message_id=message.id)
            return None
        try:
            for version, compiled in held.contracts.items():
                if invocation.remaining_ms() < RESERVE_MS:
                    return None
                self._archive.file_contract(version, compiled)
        except (ClientError, BotoCoreError):
            logger.exception(
                "a contract could not be archived; its message comes again", message_id=message.id
            )
            return None
        return held


def service() -> QueueReader:
    """Return the reader of the ledger's queue, and of those for receipts. Raises `SettingsError`."""
    settings = LedgerWriterSettings.read(os.environ)
    archive = Archiver(client("s3"), settings.archive_bucket, random_bytes)
    ledger = LedgerWriter(archive=archive, clock=system_clock)
    inboxes = settings.receipts_of or {}
    receipts = ReceiptWriter(archive=archive, clock=system_clock, inboxes=inboxes)

    def process(messages: Sequence[QueueMessage], invocation: Invocation) -> frozenset[str]:
        # A batch is of one queue.
        is_receipts = bool(messages) and messages[0].queue in inboxes
        return (receipts if is_receipts else ledger).process(messages, invocation)

    return QueueReader(process)


handle = queue_function(service)
