"""The entry of every router."""

from __future__ import annotations

import os

from eventplane.contract.schedules import schedule_of
from eventplane.function_settings import RouterSettings
from eventplane.retries import RetrySchedule
from lambdas.common.archive import Archiver
from lambdas.common.aws import OnDemand, client, tables
from lambdas.common.contracts import bundled_contract
from lambdas.common.ledger import Ledger
from lambdas.common.queue_function import QueueReader, queue_function
from lambdas.common.sender import Senders
from lambdas.common.sqs import SCHEMES, SqsSender
from lambdas.common.system import monotonic, random_bytes, system_clock, threads
from lambdas.router.active_contract import BoundedLook
from lambdas.router.dispatch import Dispatch
from lambdas.router.service import RouterService, TimeLimits
from lambdas.router.wiring import Channels, engine_in_force, patience_of
from parts import has, load


def service() -> QueueReader:
    """Return the reader of the channel's queue, which has looked at the tables once.

    Raises `SettingsError`, and what `build_engine` raises of the contract that came with the code.
    """
    settings = RouterSettings.read(os.environ)
    patience, payload_s = patience_of(settings.priority)
    bundled = bundled_contract()
    channels = Channels.of(settings, bundled)
    in_force = engine_in_force(bundled, settings, tables(), channels, payload_s)
    engines = BoundedLook(in_force, threads, monotonic)
    engines.engine()
    sqs = SqsSender(client("sqs", patience))
    senders = Senders.of(channels.inboxes.values(), dict.fromkeys(SCHEMES, sqs))
    spans = None
    # Routing never waits for code that a deployment has not brought.
    if (tracing := settings.tracing) and has("tracing", "recorder"):
        spans = load("tracing", "recorder").span_recorder(tracing, patience, threads, monotonic)
    router = RouterService(
        engine=engines.engine,
        source=lambda queue: channels.source(queue).address,
        dispatch=Dispatch(senders, channels.inboxes, threads),
        ledger=Ledger(
            sender=sqs,
            queue_url=settings.ledger_queue,
            archive=Archiver(OnDemand("s3", patience), settings.archive_bucket, random_bytes),
        ),
        clock=system_clock,
        limits=TimeLimits.of(patience, payload_s),
        spans=spans,
    )

    def schedule(queue: str) -> RetrySchedule:
        return schedule_of(channels.source(queue), settings.priority)

    return QueueReader(router.process, schedule, patience)


handle = queue_function(service)
