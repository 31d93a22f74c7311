"""The entry of the replay function."""

from __future__ import annotations

import os

from eventplane.function_settings import RouterSettings
from eventplane.replay import MAX_RECEIVES
from lambdas.common.archive import Archive
from lambdas.common.aws import client
from lambdas.common.clock import system_clock
from lambdas.common.ledger import Ledger
from lambdas.common.queue_function import QueueReader, queue_function
from lambdas.common.sqs import SCHEMES, SqsSender
from lambdas.replay.archived import Planners, TapFiles
from lambdas.replay.orders import Orders
from lambdas.replay.service import ReplayService
from lambdas.router.dispatch import Dispatch
from lambdas.router.senders import Senders
from lambdas.router.wiring import engine_in_force, wait_by


def service() -> QueueReader:
    """Return the reader of orders; the settings are those of a router of the devices' outbox.

    Raises `SettingsError`, and what `build_engine` raises of the contract that came with the code.
    """
    settings = RouterSettings.read(os.environ)
    sqs, s3 = SqsSender(client("sqs")), client("s3")
    in_force = engine_in_force(settings, client("dynamodb"))
    bucket = settings.archive_bucket
    replay = ReplayService(
        engine=in_force.engine,
        orders=Orders(TapFiles(s3, bucket), Planners(s3, bucket, settings.source)),
        dispatch=Dispatch(Senders.of(settings.queues.values(), dict.fromkeys(SCHEMES, sqs)), settings.queues),
        inboxes=settings.queues,
        ledger=Ledger(sender=sqs, queue_url=settings.ledger_queue, archive=Archive(s3, bucket)),
        clock=system_clock,
    )
    return QueueReader(replay.process, wait_by(in_force, MAX_RECEIVES))


handle = queue_function(service)
