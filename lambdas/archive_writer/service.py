"""Frames from the tap queue become tap records; what is no frame goes to the quarantine, with its reason."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.envelope import EnvelopeError
from eventplane.ingest import IngestFrame, parse_frame
from eventplane.ledger import QUARANTINE, TAP, QuarantineRecord, tap_records, to_line
from lambdas.common.archive import Archive
from lambdas.common.clock import Clock
from lambdas.common.log import logger
from lambdas.common.metrics import Metric, count
from lambdas.common.queue import QueueMessage

Readable = tuple[QueueMessage, IngestFrame]
Unreadable = tuple[QueueMessage, EnvelopeError]


class ArchiveWriterService:
    """Writes one object for the frames of a batch, and one for what is no frame."""

    def __init__(self, *, archive: Archive, clock: Clock) -> None:
        self._archive = archive
        self._clock = clock

    def process(self, messages: Sequence[QueueMessage]) -> frozenset[str]:
        """Archive `messages`; the ids of those that have to come again.

        The objects are partitioned by the hour of writing and named by the messages they hold, so that a
        batch which comes again within the hour replaces its object. Otherwise a message may stand in two:
        readers take each `message_id` and `index` once.
        """
        now_ms = self._clock()
        failed: set[str] = set()
        readable, unreadable = _sorted_out(messages, failed)
        tap = _tap_lines(readable, now_ms, failed)
        failed |= self._put(TAP, {message.id for message, _ in readable}, now_ms, tap)
        quarantine = (_quarantine_line(message, error, now_ms) for message, error in unreadable)
        failed |= self._put(QUARANTINE, {message.id for message, _ in unreadable}, now_ms, quarantine)
        count(Metric.RETRIED, len(failed))
        count(Metric.ARCHIVED, len(readable))
        count(Metric.QUARANTINED, len(unreadable))
        logger.info("archived", frames=len(readable), quarantined=len(unreadable), failed=len(failed))
        return frozenset(failed)

    def _put(self, folder: str, ids: set[str], now_ms: int, lines: Iterable[str]) -> set[str]:
        """Write one object for the messages `ids`; those ids again if that failed."""
        if not ids:
            return set()
        try:
            self._archive.put_lines(folder, _name(ids), now_ms, lines)
        except (ClientError, BotoCoreError):
            logger.exception("the archive could not be written; these messages come again", folder=folder)
            return ids
        return set()


def _sorted_out(
    messages: Iterable[QueueMessage], failed: set[str]
) -> tuple[list[Readable], list[Unreadable]]:
    """What is a frame and what is none; messages that break the reader go to `failed`."""
    readable: list[Readable] = []
    unreadable: list[Unreadable] = []
    for message in messages:
        try:
            readable.append((message, parse_frame(message.body)))
        except EnvelopeError as error:
            unreadable.append((message, error))
        except Exception:  # noqa: BLE001 - a defect met by one message must not take the others with it
            logger.exception("a frame could not be read", message_id=message.id)
            failed.add(message.id)
    return readable, unreadable


def _name(ids: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()[:32]


def _tap_lines(readable: Iterable[Readable], now_ms: int, failed: set[str]) -> Iterator[str]:
    """The lines of all frames, one frame in memory at a time; messages that break it go to `failed`."""
    for message, frame in readable:
        try:
            yield from [to_line(record) for record in tap_records(frame, message.id, now_ms)]
        except Exception:  # noqa: BLE001 - a defect met by one message must not take the others with it
            logger.exception("tap records could not be made", message_id=message.id)
            failed.add(message.id)


def _quarantine_line(message: QueueMessage, error: EnvelopeError, now_ms: int) -> str:
    record = QuarantineRecord(
        archived_at_ms=now_ms,
        message_id=message.id,
        reason=error.reason,
        detail=error.detail,
        body=message.body,
    )
    # In ASCII: whatever the message is made of, it must not stop the writing.
    return json.dumps(asdict(record))
