"""The entry of the downlink's functions, which share their code: their source says which one it is."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Final

from eventplane.contract import Channel
from eventplane.own_services import DOWNLINK
from lambdas.common.aws import client
from lambdas.common.clock import system_clock
from lambdas.common.contracts import load_contract
from lambdas.common.letters import Letters
from lambdas.common.log import logger
from lambdas.common.metrics import Metric, count, metrics
from lambdas.common.queue import Context, read_messages
from lambdas.common.redelivery import PartialResponse, Redelivery
from lambdas.common.sqs import SqsSender
from lambdas.downlink.answers import Answers
from lambdas.downlink.due import Due
from lambdas.downlink.fleet import Fleet
from lambdas.downlink.items import Items
from lambdas.downlink.presence import Presence
from lambdas.downlink.reconciler import Reconciler
from lambdas.downlink.settings import ANSWERS, DESIRED, RECONCILER, read_settings
from lambdas.downlink.table import DesiredTable
from lambdas.downlink.wanted import Wanted
from lambdas.downlink.work import WorkQueue

LETTER_SOURCE: Final = f"/eventplane/cloud/{DOWNLINK}"
"""The `source` of the downlink's dead letters."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A reader of a queue, and the answer to it."""

    reader: Wanted | Answers | Due
    redelivery: Redelivery


@cache
def service() -> Reading | Reconciler:
    """The service as the environment describes it. Raises `SettingsError`."""
    settings = read_settings(os.environ)
    contract = load_contract(settings.root)
    sqs, dynamodb = client("sqs"), client("dynamodb")
    table, work = DesiredTable(dynamodb, settings.desired), WorkQueue(sqs, settings.work)
    presence, fleet = Presence(dynamodb, settings.presence), Fleet(dynamodb, settings.fleet)

    def letters_about(channel: Channel) -> Letters:
        """Whoever redrives a letter puts its original back into `channel`."""
        return Letters(
            source=LETTER_SOURCE,
            contract=contract,
            channel=channel,
            sender=SqsSender(sqs),
            outbox=settings.outbox,
            last_resort=settings.last_resort,
        )

    letters = letters_about(contract.device.inbox)
    items = Items(table=table, data=client("iot-data"), work=work, letters=letters, clock=system_clock)
    if settings.source == RECONCILER:
        return Reconciler(table=table, items=items, presence=presence, fleet=fleet, clock=system_clock)
    reader: Wanted | Answers | Due
    if settings.source == DESIRED:

        def go_on(text: str) -> None:
            sqs.send_message(QueueUrl=settings.source_queue, MessageBody=text)

        reader = Wanted(
            contract=contract,
            fleet=fleet,
            presence=presence,
            items=items,
            letters=letters,
            go_on=go_on,
            clock=system_clock,
        )
    elif settings.source == ANSWERS:
        inbox = contract.participants[DOWNLINK].inbox
        reader = Answers(
            contract=contract, items=items, work=work, letters=letters_about(inbox), clock=system_clock
        )
    else:
        reader = Due(table=table, items=items, presence=presence, fleet=fleet, work=work, clock=system_clock)
    return Reading(reader, Redelivery(sqs, settings.source_queue))


@logger.inject_lambda_context
@metrics.log_metrics
def handle(event: dict[str, Any], context: Context) -> PartialResponse | dict[str, Any]:
    """Read one batch of a queue; or reconcile the `buckets` that the schedule names."""
    it, remaining_ms = service(), context.get_remaining_time_in_millis
    if isinstance(it, Reconciler):
        done = it.reconcile(event["buckets"], remaining_ms)
        count(Metric.RECONCILED, done.items)
        return asdict(done)
    messages = read_messages(event)
    count(Metric.MESSAGES, len(messages))
    failed = it.reader.process(messages, remaining_ms)
    count(Metric.RETRIED, len(failed))
    return it.redelivery.answer(messages, failed, remaining_ms)
