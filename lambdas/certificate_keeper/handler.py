"""The keeper's entry: wires once for the life of the process, then delegates."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from typing import Any

from eventplane.fleet_registry import Registry
from lambdas.certificate_keeper.certificates import Certificates
from lambdas.certificate_keeper.grace import Grace
from lambdas.certificate_keeper.service import KeeperService
from lambdas.certificate_keeper.settings import read_settings
from lambdas.common.aws import client
from lambdas.common.clock import system_clock
from lambdas.common.log import logger
from lambdas.common.queue import Context, read_messages
from lambdas.common.redelivery import PartialResponse, Redelivery


@dataclass(frozen=True, slots=True)
class Wired:
    """What lasts as long as the process."""

    keeper: KeeperService
    redelivery: Redelivery


@cache
def service() -> Wired:
    """The service as the environment describes it. Raises `SettingsError`."""
    settings = read_settings(os.environ)
    sqs = client("sqs")
    keeper = KeeperService(
        store=Registry(client("dynamodb"), settings.table),
        certificates=Certificates(client("iot"), settings.certificate_arns),
        grace=Grace(sqs, settings.queue, settings.grace_s),
        clock=system_clock,
    )
    return Wired(keeper, Redelivery(sqs, settings.queue))


@logger.inject_lambda_context
def handle(event: dict[str, Any], context: Context) -> PartialResponse:
    """Handle one batch of connections and ends of grace."""
    wired, messages = service(), read_messages(event)
    remaining_ms = context.get_remaining_time_in_millis
    failed = wired.keeper.process(messages, remaining_ms=remaining_ms)
    return wired.redelivery.answer(messages, failed, remaining_ms)
