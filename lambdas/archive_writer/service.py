"""Frames from the tap queue become tap records; what is no frame goes to the quarantine, with its reason."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Final

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.envelope import EnvelopeError
from eventplane.ingest import IngestFrame, parse_frame
from eventplane.ledger import QUARANTINE, TAP, QuarantineRecord, tap_records, to_line
from lambdas.common.archive import Archive
from lambdas.common.aws import WORST_CALL_MS
from lambdas.common.clock import Clock
from lambdas.common.log import logger
from lambdas.common.metrics import Metric, count
from lambdas.common.queue import QueueMessage

RESERVE_MS: Final = 3 * WORST_CALL_MS
"""No frame is begun with less time left, milliseconds: two objects and the answer to the queue at worst."""

Readable = tuple[QueueMessage, IngestFrame]
Unreadable = tuple[QueueMessage, EnvelopeError]


class ArchiveWriterService:
    """Writes one object for the frames of a batch, and one for what is no frame."""

    def __init__(self, *, archive: Archive, clock: Clock) -> None:
        self._archive = archive
        self._clock = clock

    def process(self, messages: Sequence[QueueMessage], *, remaining_ms: Callable[[], int]) -> frozenset[str]:
        """Archive `messages`; the ids of those that have to come again, be it for want of time.

        The objects are partitioned by the hour of writing and named by the messages they hold, so that a
        batch which comes again within the hour replaces its object. Otherwise a message may stand in two:
        readers take each `message_id` and `index` once.
        """
        now_ms = self._clock()
        failed: set[str] = set()
        readable, unreadable = _sorted_out(messages, failed)
        held: set[str] = set()
        tap = self._put(TAP, held, now_ms, _tap_lines(readable, now_ms, remaining_ms, held))
        lines = (_quarantine_line(message, error, now_ms) for message, error in unreadable)
        quarantine = self._put(QUARANTINE, {message.id for message, _ in unreadable}, now_ms, lines)
        failed |= {message.id for message, _ in [*readable, *unreadable]} - tap - quarantine
        count(Metric.RETRIED, len(failed))
        count(Metric.ARCHIVED, len(tap))
        count(Metric.QUARANTINED, len(quarantine))
        logger.info("archived", frames=len(tap), quarantined=len(quarantine), failed=len(failed))
        return frozenset(failed)

    def _put(self, folder: str, held: set[str], now_ms: int, lines: Iterable[str]) -> set[str]:
        """Write one object of `lines`, which are those of the messages `held` when all are read; the ids of
        the messages that are safe by it."""
        try:
            self._archive.put_lines(folder, lambda: _name(held), now_ms, lines)
        except (ClientError, BotoCoreError):
            logger.exception("the archive could not be written; these messages come again", folder=folder)
            return set()
        return held


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


def _tap_lines(
    readable: Iterable[Readable], now_ms: int, remaining_ms: Callable[[], int], held: set[str]
) -> Iterator[str]:
    """The lines of the frames for which there is time, one frame in memory at a time.

    `held` takes the ids of their messages, without those that break it.
    """
    for message, frame in readable:
        if remaining_ms() < RESERVE_MS:
            logger.warning("no time left; the rest of the batch comes again", frames=len(held))
            return
        try:
            lines = [to_line(record) for record in tap_records(frame, message.id, now_ms)]
        except Exception:  # noqa: BLE001 - a defect met by one message must not take the others with it
            logger.exception("tap records could not be made", message_id=message.id)
            continue
        held.add(message.id)
        yield from lines


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
