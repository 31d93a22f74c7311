"""Shared by the functions of the downlink, from the settings that they share."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from eventplane.contract import Channel, Contract
from eventplane.device_record import REGISTRY
from eventplane.downlink.desired import Desired
from eventplane.downlink.table import DESIRED
from eventplane.function_settings import DownlinkFunctionSettings
from eventplane.names import DOWNLINK
from eventplane.presence import PRESENCE
from eventplane.records import Records, Tables
from lambdas.common.aws import client, tables
from lambdas.common.contracts import bundled_contract
from lambdas.common.dead_letters import DeadLetterWriter
from lambdas.common.sqs import SqsSender
from lambdas.common.system import Clock, system_clock
from lambdas.downlink.devices import FleetReader, Presence
from lambdas.downlink.items import Items, WorkQueue

LETTER_SOURCE: Final = f"/eventplane/cloud/{DOWNLINK}"
"""The `source` of the downlink's dead letters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DownlinkParts:
    """The parts; `letters` makes the writer of dead letters whose originals a redrive puts into a channel.

    `items` is the one way to change the `table`.
    """

    contract: Contract
    table: Records[Desired]
    items: Items
    presence: Presence
    fleet: FleetReader
    work: WorkQueue
    letters: Callable[[Channel], DeadLetterWriter]
    clock: Clock
    sqs: Any


def wired() -> DownlinkParts:
    """Return the parts that the environment describes. Raises `SettingsError`."""
    return parts_of(
        DownlinkFunctionSettings.read(os.environ), bundled_contract(), client, tables(), system_clock
    )


def parts_of(
    settings: DownlinkFunctionSettings,
    contract: Contract,
    client: Callable[[str], Any],
    store: Tables,
    clock: Clock,
) -> DownlinkParts:
    """Return the parts that `settings` describe, with clients of AWS's services by their names."""
    sqs = client("sqs")

    def letters(channel: Channel) -> DeadLetterWriter:
        return DeadLetterWriter(
            source=LETTER_SOURCE,
            contract=contract,
            channel=channel,
            sender=SqsSender(sqs),
            outbox=settings.outbox_queue,
            last_resort=settings.dead_letter_queue,
            clock=clock,
        )

    table = Records(store, settings.desired_table, DESIRED)
    work = WorkQueue(sqs, settings.work_queue)
    return DownlinkParts(
        contract=contract,
        table=table,
        items=Items(
            table=table,
            data=client("iot-data"),
            work=work,
            letters=letters(contract.device.inbox),
            clock=clock,
        ),
        presence=Presence(Records(store, settings.presence_table, PRESENCE)),
        fleet=FleetReader(Records(store, settings.fleet_table, REGISTRY)),
        work=work,
        letters=letters,
        clock=clock,
        sqs=sqs,
    )
