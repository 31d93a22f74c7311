"""The entry of the presence functions, which share their code: their source says which one it is."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Final

from lambdas.common.aws import client
from lambdas.common.clock import system_clock
from lambdas.common.log import logger
from lambdas.common.queue import Context, read_messages
from lambdas.common.redelivery import PartialResponse, Redelivery
from lambdas.common.settings import SettingsError
from lambdas.common.sqs import SqsSender
from lambdas.presence.notices import Notices
from lambdas.presence.observations import Reader, read_heartbeat, read_presence
from lambdas.presence.recorder import Recorder
from lambdas.presence.settings import SWEEP, read_settings
from lambdas.presence.sweeper import Sweeper
from lambdas.presence.table import PresenceTable
from lambdas.presence.watch import Watch

READERS: Final[dict[str, Reader]] = {"presence": read_presence, "heartbeats": read_heartbeat}
"""What a recorder reads, by its source."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorder, and the answer to its queue."""

    recorder: Recorder
    redelivery: Redelivery


@cache
def service() -> Recording | Sweeper:
    """The service as the environment describes it. Raises `SettingsError`."""
    settings = read_settings(os.environ)
    table = PresenceTable(client("dynamodb"), settings.table)
    watch = Watch(settings.limits, Notices())
    if settings.outbox_url is not None:
        sender = SqsSender(client("sqs"))
        return Sweeper(
            table=table, watch=watch, sender=sender, outbox_url=settings.outbox_url, clock=system_clock
        )
    if settings.source not in READERS:
        raise SettingsError(
            "EVENTPLANE_SOURCE", f"is {settings.source!r}, not {SWEEP} or {', '.join(READERS)}"
        )
    recorder = Recorder(read=READERS[settings.source], table=table, watch=watch)
    return Recording(recorder, Redelivery(client("sqs"), settings.source_queue))


@logger.inject_lambda_context
def handle(event: dict[str, Any], context: Context) -> PartialResponse | dict[str, Any]:
    """Take down one batch of a queue; or sweep the `buckets` that the schedule names."""
    it = service()
    if isinstance(it, Sweeper):
        return asdict(it.sweep(event["buckets"], context.get_remaining_time_in_millis))
    messages, remaining_ms = read_messages(event), context.get_remaining_time_in_millis
    return it.redelivery.answer(messages, it.recorder.process(messages, remaining_ms), remaining_ms)
