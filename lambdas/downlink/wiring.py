"""What the functions of the downlink share, from the settings that they share."""

from __future__ import annotations

import os
from functools import cached_property
from typing import Final

from eventplane.contract import Channel
from eventplane.function_settings import DownlinkSettings
from eventplane.own_services import DOWNLINK
from lambdas.common.aws import client
from lambdas.common.clock import system_clock
from lambdas.common.contracts import bundled_contract
from lambdas.common.letters import Letters
from lambdas.common.sqs import SqsSender
from lambdas.downlink.devices import Fleet, Presence
from lambdas.downlink.items import DesiredTable, Items
from lambdas.downlink.work import WorkQueue

LETTER_SOURCE: Final = f"/eventplane/cloud/{DOWNLINK}"
"""The `source` of the downlink's dead letters."""


class Wiring:
    """The parts, as the environment describes them. Raises `SettingsError`."""

    def __init__(self) -> None:
        settings = DownlinkSettings.read(os.environ)
        self.contract = bundled_contract()
        self.clock = system_clock
        self.sqs, dynamodb = client("sqs"), client("dynamodb")
        self.table = DesiredTable(dynamodb, settings.desired_table)
        self.work = WorkQueue(self.sqs, settings.work_queue)
        self.presence = Presence(dynamodb, settings.presence_table)
        self.fleet = Fleet(dynamodb, settings.fleet_table)
        self._settings = settings

    def letters_about(self, channel: Channel) -> Letters:
        """Return the writer of dead letters whose originals a redrive puts back into `channel`."""
        return Letters(
            source=LETTER_SOURCE,
            contract=self.contract,
            channel=channel,
            sender=SqsSender(self.sqs),
            outbox=self._settings.outbox_queue,
            last_resort=self._settings.dead_letter_queue,
        )

    @cached_property
    def items(self) -> Items:
        """The one way to change the table."""
        return Items(
            table=self.table,
            data=client("iot-data"),
            work=self.work,
            letters=self.letters_about(self.contract.device.inbox),
            clock=self.clock,
        )
