"""The entry of the presence functions, which share their code: their source says which one it is."""

from __future__ import annotations

import os
from dataclasses import asdict
from functools import cache
from typing import Any, Final

from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse

from lambdas.common.aws import client
from lambdas.common.clock import system_clock
from lambdas.common.log import logger
from lambdas.common.queue import Context, partial_response, read_messages
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


@cache
def service() -> Recorder | Sweeper:
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
    return Recorder(read=READERS[settings.source], table=table, watch=watch)


@logger.inject_lambda_context
def handle(event: dict[str, Any], context: Context) -> PartialItemFailureResponse | dict[str, Any]:
    """Take down one batch of a queue; or sweep the `buckets` that the schedule names."""
    it = service()
    if isinstance(it, Sweeper):
        return asdict(it.sweep(event["buckets"], context.get_remaining_time_in_millis))
    return partial_response(
        event, context, it.process(read_messages(event), context.get_remaining_time_in_millis)
    )
