"""The function that tells devices what the cloud wants of them: it looks once a minute, and sends changes."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from eventplane.contract import Contract, ContractError, Problem
from eventplane.contract.publication import ContractTable, cloud_destinations, unserved
from eventplane.contract.subscription import with_subscriptions
from eventplane.downlink.addressing import ALL
from eventplane.envelope import Envelope
from eventplane.function_settings import UplinkInterestSettings
from eventplane.interest.table import Told, begin_request, digest_of, done_request, read_told, told_key
from eventplane.interest.uplink import TooManyFiltersError, uplink_filters, uplink_interest_event
from eventplane.values import timestamp_of_ms
from lambdas.common.aws import client
from lambdas.common.clock import Clock, system_clock
from lambdas.common.contracts import bundled_contract
from lambdas.common.log import logger
from lambdas.common.queue import Context
from lambdas.common.queue_function import at_init
from lambdas.common.tables import SubscriptionTable, is_done

SOURCE: Final = "/eventplane/cloud/uplink-interest"
"""The `source` of its events."""


class PublishedInterest:
    """What devices were told last, through a boto3 DynamoDB client. Raises botocore's errors."""

    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self._name = name

    def read(self) -> Told | None:
        """What was told last; None: nothing yet, or somebody asked to have it told again."""
        answer = self._client.get_item(TableName=self._name, Key=told_key(), ConsistentRead=True)
        return read_told(answer["Item"]) if "Item" in answer else None

    def begin(self, at_ms: int) -> bool:
        """Before telling: what was told is unknown from here on. False when somebody began later."""
        return is_done(self._client.put_item, begin_request(self._name, at_ms))

    def done(self, told: Told) -> bool:
        """After telling; False when somebody began meanwhile."""
        return is_done(self._client.put_item, done_request(self._name, told))


@dataclass(frozen=True, slots=True, kw_only=True)
class UplinkInterest:
    """Compares what routes and subscriptions take with what devices were told; `send` takes an event's JSON.

    Unlike a router it goes by nothing that it read earlier, nor by the contract that came with the code when
    the tables do not answer: what devices are not told to send is gone. `bundled` names the deployment.
    """

    bundled: Contract
    contracts: ContractTable
    subscriptions: SubscriptionTable
    told: PublishedInterest
    send: Callable[[str], None]
    clock: Clock

    def tell(self) -> bool:
        """Whether there was something to tell.

        Raises what botocore raises, and `ContractError` for a published contract that cannot be used: then
        devices keep what they have. Raises `TooManyFiltersError` at each call while the filters do not fit
        into an event, once devices were told to send everything.
        """
        last = self.told.read()
        at_ms = self.clock() if last is None else max(self.clock(), last.at_ms + 1)
        filters: list[object] | None = uplink_filters(self._in_force())
        too_many = None
        try:
            event = _event(filters, at_ms)
        except TooManyFiltersError as error:
            filters, too_many = None, error
            event = _event(None, at_ms)
        told = Told(at_ms, digest_of(filters))
        is_new = last is None or last.digest != told.digest
        if is_new:
            self._say(event, told)
        if too_many is not None:
            raise too_many
        return is_new

    def _say(self, event: Envelope, told: Told) -> None:
        # A call that ends in between leaves no memory, and the next one tells again, also what was before.
        if not self.told.begin(told.at_ms):
            logger.info("another call tells devices what the cloud wants")
            return
        self.send(event.json)
        self.told.done(told)
        logger.info("devices are told what the cloud wants", event_id=event.id, digest=told.digest)

    def _in_force(self) -> Contract:
        head = self.contracts.head(self.bundled.version)
        contract = self.bundled
        if head is not None and head.version != contract.version:
            contract = self.contracts.contract(head.version)
            _check(contract, self.bundled)
        return with_subscriptions(contract, self.subscriptions.all())[0]


def _check(contract: Contract, deployed: Contract) -> None:
    """Raises `ContractError` for one that routers do not take: they go on by what was published before it."""
    queues = {each.address for each in cloud_destinations(deployed)}
    if wrong := [
        Problem(f"routes.{each.name}.to", f"{each.destination} has no queue", "deploy the contract")
        for each in unserved(contract, queues)
    ]:
        raise ContractError(f"published contract {contract.version}", wrong)


def _event(filters: list[object] | None, at_ms: int) -> Envelope:
    time = timestamp_of_ms(at_ms)
    return uplink_interest_event(filters, id=str(uuid.uuid4()), time=time, device=ALL, source=SOURCE)


@at_init
def service() -> UplinkInterest:
    """Return the service that the environment describes. Raises `SettingsError`."""
    settings = UplinkInterestSettings.read(os.environ)
    sqs, dynamodb = client("sqs"), client("dynamodb")

    def send(text: str) -> None:
        sqs.send_message(QueueUrl=settings.outbox_queue, MessageBody=text)

    return UplinkInterest(
        bundled=bundled_contract(),
        contracts=ContractTable(dynamodb, settings.contracts_table),
        subscriptions=SubscriptionTable(dynamodb, settings.subscriptions_table),
        told=PublishedInterest(dynamodb, settings.desired_table),
        send=send,
        clock=system_clock,
    )


@logger.inject_lambda_context
def handle(event: dict[str, Any], context: Context) -> dict[str, bool]:  # noqa: ARG001 - Lambda passes both
    """Tell devices what has changed; return whether there was something."""
    return {"told": service().tell()}
