"""The ledger as those see it who decide: durable in its queue, or else in the archive."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.contract import Contract
from eventplane.errors import EventPlaneError
from eventplane.ledger import LEDGER, LedgerMessage, LedgerRecord, ledger_texts, to_line
from lambdas.common.archive import Archive
from lambdas.common.log import logger
from lambdas.common.metrics import Metric, count
from lambdas.common.sender import Sender
from lambdas.common.sqs import PlainMessage, send_all


class LedgerError(EventPlaneError):
    """Neither the ledger's queue nor the archive took `records` decisions."""

    def __init__(self, records: int) -> None:
        super().__init__(
            f"{records} decisions are not durable; their messages come again. See whether SQS and S3 can be "
            "reached, and whether the function's role may write to both"
        )
        self.records = records


class Ledger:
    """Sends records to the queue at `queue_url`; what it refuses goes to `archive`."""

    def __init__(self, *, sender: Sender, queue_url: str, archive: Archive) -> None:
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

    def write(
        self, name: str, records: Sequence[LedgerRecord], at_ms: int, has_time: Callable[[], bool]
    ) -> None:
        """Make `records` durable.

        If the queue refuses and there still `has_time`, the archive takes them at `at_ms` (Unix milliseconds)
        as one object called `name`, which a retry must not repeat. Raises `LedgerError`.
        """
        if not records:
            return
        parts = ledger_texts([to_line(each) for each in records], self._contracts)
        taken = send_all(self._sender, self._queue_url, (PlainMessage(text) for text, _ in parts))
        refused = [held for (_, held), is_taken in zip(parts, taken, strict=True) if not is_taken]
        if refused:
            if not has_time():
                raise LedgerError(len(records))
            self._write_to_archive(name, refused, at_ms)
        self._filed |= set(self._contracts)
        self._contracts = {}

    def _write_to_archive(self, name: str, refused: Sequence[LedgerMessage], at_ms: int) -> None:
        lines = [line for each in refused for line in each.lines]
        count(Metric.LEDGER_DETOURED, len(lines))
        try:
            for each in refused:
                for version, compiled in each.contracts.items():
                    self._archive.file_contract(version, compiled)
            self._archive.put_lines(LEDGER, name, at_ms, lines)
        except (ClientError, BotoCoreError) as error:
            raise LedgerError(len(lines)) from error
        logger.warning("the ledger's queue refused; its lines are in the archive", records=len(lines))
