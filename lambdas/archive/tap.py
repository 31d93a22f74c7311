"""Frames from the tap queue become tap records; what is no frame goes to the quarantine, with its reason."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Final

from eventplane.errors import EnvelopeError
from eventplane.function_settings import ArchiveWriterSettings
from eventplane.ingest import IngestFrame, parse_frame
from eventplane.ledger import QUARANTINE, TAP, QuarantineRecord, tap_records, to_line
from eventplane.topics import is_device_name
from eventplane.traffic import Frame, Quota, loudest, traffic_text
from eventplane.values import RandomBytes
from lambdas.common.archive import Archiver
from lambdas.common.aws import WORST_CALL_MS, client
from lambdas.common.log import logger
from lambdas.common.metrics import Count, count
from lambdas.common.queue import Invocation, QueueMessage
from lambdas.common.queue_function import QueueReader, handle_each, queue_function
from lambdas.common.sqs import PlainMessage, SqsSender, send_all
from lambdas.common.system import Clock, random_bytes, system_clock

RESERVE_MS: Final = 4 * WORST_CALL_MS
"""No frame is begun with less time left, milliseconds: two objects, the list of what was written and the
answer to the queue at worst."""

TELLING_MS: Final = 2 * WORST_CALL_MS
"""The loudest devices are not reported with less time left, milliseconds: it covers that, and the answer."""

Readable = tuple[QueueMessage, IngestFrame]
Unreadable = tuple[QueueMessage, EnvelopeError]


class TrafficReport:
    """Tells the presence monitor, by its queue at `queue_url`, of devices that are loud by `quota`."""

    def __init__(self, sender: SqsSender, queue_url: str, quota: Quota, random_bytes: RandomBytes) -> None:
        self._random_bytes = random_bytes
        self._sender = sender
        self._queue_url = queue_url
        self._quota = quota

    def send(self, publishes: Iterable[Frame]) -> None:
        """Send the counts of the loudest. Those that SQS does not take are lost: the next batch has more."""
        counts = (
            PlainMessage(traffic_text(*each, self._random_bytes(6).hex()))
            for each in loudest(publishes, self._quota)
        )
        send_all(self._sender, self._queue_url, counts)


class TapWriter:
    """Writes one object for the frames of a batch, and one for what is no frame.

    `traffic` is told of the frames, where somebody wants to know which devices are loud.
    """

    def __init__(self, *, archive: Archiver, clock: Clock, traffic: TrafficReport | None = None) -> None:
        self._archive = archive
        self._clock = clock
        self._traffic = traffic

    def process(self, messages: Sequence[QueueMessage], invocation: Invocation) -> frozenset[str]:
        """Archive `messages`; the ids of those that have to come again, be it for want of time.

        A message may stand in two objects: readers take each `message_id` and `index` once.
        """
        now_ms, remaining_ms = self._clock(), invocation.remaining_ms
        readable, unreadable, failed = _sorted_out(messages)
        held: dict[str, int] = {}
        tap = self._archive.put_messages(TAP, held, now_ms, _tap_lines(readable, now_ms, remaining_ms, held))
        lines = (_quarantine_line(message, error, now_ms) for message, error in unreadable)
        unread = {message.id for message, _ in unreadable}
        quarantine = self._archive.put_messages(QUARANTINE, unread, now_ms, lines)
        failed |= {message.id for message, _ in [*readable, *unreadable]} - tap - quarantine
        count(Count.ARCHIVED, len(tap))
        count(Count.QUARANTINED, len(quarantine))
        if self._traffic and remaining_ms() >= TELLING_MS:
            # Of what is safe only: what comes again is counted then.
            self._traffic.send(
                Frame(frame.client_id, frame.accepted_at_ms, held[message.id], len(frame.payload))
                for message, frame in readable
                if message.id in tap and is_device_name(frame.client_id)
            )
        logger.info("archived", frames=len(tap), quarantined=len(quarantine), failed=len(failed))
        return failed


def _sorted_out(
    messages: Iterable[QueueMessage],
) -> tuple[list[Readable], list[Unreadable], frozenset[str]]:
    """What is a frame, what is none, and the ids of messages that break the reader."""
    readable: list[Readable] = []
    unreadable: list[Unreadable] = []

    def sort_out(message: QueueMessage) -> bool:
        try:
            readable.append((message, parse_frame(message.body)))
        except EnvelopeError as error:
            unreadable.append((message, error))
        return True

    return readable, unreadable, handle_each(messages, sort_out)


def _tap_lines(
    readable: Iterable[Readable], now_ms: int, remaining_ms: Callable[[], int], held: dict[str, int]
) -> Iterator[str]:
    """The lines of the frames for which there is time, one frame in memory at a time.

    `held` takes the ids of their messages with the number of their items, without those that break it.
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
        held[message.id] = len(lines)
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


def service() -> QueueReader:
    """Return the reader of the tap's queue. Raises `SettingsError`."""
    settings = ArchiveWriterSettings.read(os.environ)
    traffic = None
    if settings.traffic_queue and settings.device_quota:
        sender = SqsSender(client("sqs"))
        traffic = TrafficReport(sender, settings.traffic_queue, settings.device_quota, random_bytes)
    archive = Archiver(client("s3"), settings.archive_bucket, random_bytes)
    return QueueReader(TapWriter(archive=archive, clock=system_clock, traffic=traffic).process)


handle = queue_function(service)
