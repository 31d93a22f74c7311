"""The entry of the function that handles failures of the ingest rules."""

from __future__ import annotations

import os

from eventplane.function_settings import IngestErrorsSettings
from lambdas.common.aws import client
from lambdas.common.clock import system_clock
from lambdas.common.queue_function import QueueReader, queue_function
from lambdas.common.sqs import SqsSender
from lambdas.ingest_errors.service import IngestErrorsService


def service() -> QueueReader:
    """Return the reader of the ingest-error queue. Raises `SettingsError`."""
    settings = IngestErrorsSettings.read(os.environ)
    errors = IngestErrorsService(
        ways_in=settings.ways_in,
        letters_to=settings.letters_to,
        channel=settings.source,
        contract_version=settings.contract,
        sender=SqsSender(client("sqs")),
        clock=system_clock,
    )
    return QueueReader(errors.process)


handle = queue_function(service)
