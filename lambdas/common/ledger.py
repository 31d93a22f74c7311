"""The ledger as those see it who decide: durable in its queue, or else in the archive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.contract import Contract
from eventplane.contract.publication import Head, head_name, head_text
from eventplane.errors import EventPlaneError
from eventplane.ledger import LEDGER, LedgerMessage, LedgerRecord, ledger_texts, to_line
from lambdas.common.archive import Archiver
from lambdas.common.log import logger
from lambdas.common.metrics import Count, count
from lambdas.common.sender import Acceptance, Answer, DestinationSender
from lambdas.common.sqs import PlainMessage, batches


class LedgerError(EventPlaneError):
    """Neither the ledger's queue nor the archive took `records` decisions."""

    records: int
    message = (
        "{records} decisions are not stored; their messages are redelivered. Check whether SQS and S3 can be "
        "reached, and whether the function's role may write to both"
    )


class Ledger:
    """Sends records to the queue at `queue_url`; what it refuses goes to `archive`."""

    def __init__(self, *, sender: DestinationSender, queue_url: str, archive: Archiver) -> None:
        self._sender = sender
        self._queue_url = queue_url
        self._archive = archive
        self._filed: set[str] = set()
        self._contracts: dict[str, bytes] = {}

    def file(self, contract: Contract) -> None:
        """Send `contract` with the next records, once for the life of this object.

        Everyone who decides by a contract files it, so that the audit finds all that were ever in force.
        """
        if contract.version not in self._filed:
            self._contracts[contract.version] = contract.canonical

    def file_head(self, head: Head) -> None:
        """Send `head` with the next records, once, so that the audit finds what was in force for whom."""
        if (name := head_name(head)) not in self._filed:
            self._contracts[name] = head_text(head)

    def write(
        self, name: str, records: Sequence[LedgerRecord], at_ms: int, has_time: Callable[[], bool]
    ) -> None:
        """Make `records` durable.

        If the queue refuses, the archive takes them at `at_ms` (Unix milliseconds) as one object called
        `name`, which a retry must not repeat. Only the first call is made without asking whether it
        `has_time`. Raises `LedgerError`.
        """
        if not records:
            return
        parts = ledger_texts([to_line(each) for each in records], self._contracts)
        answers: list[Answer] = []
        for batch in batches(PlainMessage(text) for text, _ in parts):
            if answers and not has_time():
                raise LedgerError(len(records))
            answers += self._sender.send(self._queue_url, batch)
        refused = [
            held
            for (_, held), answer in zip(parts, answers, strict=True)
            if answer.acceptance is not Acceptance.TAKEN
        ]
        if refused:
            self._write_to_archive(name, refused, at_ms, has_time)
        self._filed |= set(self._contracts)
        self._contracts = {}

    def _write_to_archive(
        self, name: str, refused: Sequence[LedgerMessage], at_ms: int, has_time: Callable[[], bool]
    ) -> None:
        lines = [line for each in refused for line in each.lines]
        calls: list[Callable[[], object]] = [
            partial(self._archive.file_contract, version, compiled)
            for each in refused
            for version, compiled in each.contracts.items()
        ]
        calls.append(partial(self._archive.put_lines, LEDGER, name, at_ms, lines, has_time))
        try:
            for call in calls:
                # A contract that is filed is not filed again: the next attempt has the time for the rest.
                if not has_time():
                    raise LedgerError(len(lines))
                call()
        except (ClientError, BotoCoreError) as error:
            raise LedgerError(len(lines)) from error
        count(Count.LEDGER_DETOURED, len(lines))
        logger.warning("the ledger's queue refused; its lines are in the archive", records=len(lines))
