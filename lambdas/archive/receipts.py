"""Write receipts to the archive's handovers; what is no receipt of the queue's reader to the quarantine.

A reader writes to a queue of its own and speaks of its own inbox only, so none can do so for another.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Final

from eventplane.ledger import HANDOVERS, QUARANTINE, QuarantineRecord, to_line
from eventplane.reader_receipts import ReaderReceiptError, read_receipt
from lambdas.common.archive import Archiver
from lambdas.common.log import logger
from lambdas.common.metrics import Count, count
from lambdas.common.queue import Invocation, QueueMessage
from lambdas.common.system import Clock

NOT_A_RECEIPT: Final = "not_a_receipt"
"""The reason of what is in quarantine."""


class ReceiptWriter:
    """Archives receipts of the readers of `inboxes`, which has the address of each by its queue's name."""

    def __init__(self, *, archive: Archiver, clock: Clock, inboxes: Mapping[str, str]) -> None:
        self._archive = archive
        self._clock = clock
        self._inboxes = inboxes

    def process(self, messages: Sequence[QueueMessage], _: Invocation) -> frozenset[str]:
        """Archive the receipts in `messages`; return the ids of those that have to come again."""
        now_ms, bad = self._clock(), list[QuarantineRecord]()
        ids = {message.id for message in messages}
        safe = self._archive.put_messages(HANDOVERS, ids, now_ms, self._lines(messages, bad, now_ms))
        if bad:
            lines = (json.dumps(asdict(each)) for each in bad)
            # Under the same name: a batch that comes again is not there twice.
            safe &= self._archive.put_messages(QUARANTINE, ids, now_ms, lines)
        count(Count.ARCHIVED, len(safe))
        count(Count.QUARANTINED, len(bad))
        logger.info("archived", messages=len(safe), failed=len(ids - safe), quarantined=len(bad))
        return frozenset(ids - safe)

    def _lines(
        self, messages: Sequence[QueueMessage], bad: list[QuarantineRecord], now_ms: int
    ) -> Iterator[str]:
        """The rows of `messages`; `bad` takes each that has a line that is no receipt, once."""
        for message in messages:
            fault: ReaderReceiptError | None = None
            for line in filter(None, message.body.split("\n")):
                try:
                    receipt = read_receipt(line, self._inboxes[message.queue])
                except ReaderReceiptError as error:
                    fault = fault or error
                else:
                    # Nothing was settled later than it came here, whatever its reader's clock says.
                    entered_ms = min(receipt.entered_at_ms, message.sent_at_ms)
                    settled_ms = max(entered_ms, min(receipt.decided_at_ms, message.sent_at_ms))
                    yield to_line(replace(receipt, entered_at_ms=entered_ms, decided_at_ms=settled_ms))
            if fault:
                bad.append(QuarantineRecord(now_ms, message.id, NOT_A_RECEIPT, str(fault), message.body))
