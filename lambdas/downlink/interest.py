"""The function that sends devices the filters of what the cloud wants: once a minute, if they changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from eventplane.contract import Contract, ContractError, Problem
from eventplane.contract.publication import ContractTable, cloud_destinations, unserved
from eventplane.contract.subscription import with_subscriptions
from eventplane.contract.subscription_table import SubscriptionTable
from eventplane.downlink.wire import ALL
from eventplane.envelope import Envelope
from eventplane.function_settings import UplinkInterestSettings
from eventplane.interest.table import PUBLISHED, PUBLISHED_SORT_KEY, PublishedFilters, filters_digest
from eventplane.interest.uplink import TooManyFiltersError, uplink_filters, uplink_interest_event
from eventplane.records import NEW, Records
from eventplane.sqs_binding import send_request
from eventplane.values import RandomBytes, timestamp_of_ms
from lambdas.common.aws import client, tables
from lambdas.common.contracts import bundled_contract
from lambdas.common.log import log_foreign, logger
from lambdas.common.queue import Context
from lambdas.common.queue_function import at_init
from lambdas.common.system import Clock, random_bytes, system_clock

SOURCE: Final = "/eventplane/cloud/uplink-interest"
"""The `source` of its events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UplinkInterest:
    """Compares the filters of routes and subscriptions with those that devices were sent.

    Unlike a router it uses nothing that it read earlier, nor the contract that came with the code when the
    tables do not answer: events that devices are not asked for are lost. `bundled` names the deployment;
    `record` has what was sent last;
    `send` puts an event into the outbox.
    """

    bundled: Contract
    contracts: ContractTable
    subscriptions: SubscriptionTable
    record: Records[PublishedFilters]
    send: Callable[[Envelope], None]
    clock: Clock
    random_bytes: RandomBytes

    def publish(self) -> bool:
        """Publish the filters if they changed; return whether they had.

        Raises botocore's errors, and `ContractError` for a published contract that cannot be used: then
        devices keep what they have. Raises `TooManyFiltersError` at each call while the filters do not fit
        one event, after devices were asked to send everything.
        """
        last = self.record.read(ALL, PUBLISHED_SORT_KEY)
        at_ms = self.clock() if last is None else max(self.clock(), last.published_at_ms + 1)
        filters: list[object] | None = uplink_filters(*self._in_force())
        too_many = None
        try:
            event = self._event(filters, at_ms)
        except TooManyFiltersError as error:
            filters, too_many = None, error
            event = self._event(None, at_ms)
        published = PublishedFilters(at_ms, filters_digest(filters), last.revision if last else NEW)
        is_new = last is None or last.digest != published.digest
        if is_new:
            self._send(event, published)
        if too_many is not None:
            raise too_many
        return is_new

    def _event(self, filters: list[object] | None, at_ms: int) -> Envelope:
        id, time = self.random_bytes(16).hex(), timestamp_of_ms(at_ms)
        return uplink_interest_event(filters, id=id, time=time, device=ALL, source=SOURCE)

    def _send(self, event: Envelope, published: PublishedFilters) -> None:
        # A call that ends in between leaves no digest, and the next one publishes again, also what was
        # before.
        if not (begun := self.record.write(replace(published, digest=""))):
            logger.info("another call publishes the filters")
            return
        self.send(event)
        self.record.write(replace(published, revision=begun.revision))
        logger.info("the filters are published to devices", event_id=event.id, digest=published.digest)

    def _in_force(self) -> Iterator[Contract]:
        """Return the contract in force, and its candidate: all devices are sent the filters of both."""
        head = self.contracts.head(self.bundled.version)
        yield self._published(head.version if head else self.bundled.version)
        if head and head.candidate:
            try:
                yield self._published(head.candidate)
            except ContractError:
                # Routers judge by the other one then.
                logger.exception("a candidate cannot be used", contract=head.candidate)

    def _published(self, version: str) -> Contract:
        contract = self.bundled
        if version != contract.version:
            contract = self.contracts.contract(version)
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


@at_init
def service() -> UplinkInterest:
    """Return the service that the environment describes. Raises `SettingsError`."""
    settings = UplinkInterestSettings.read(os.environ)
    sqs, store = client("sqs"), tables()

    def send(event: Envelope) -> None:
        sqs.send_message(**send_request(settings.outbox_queue, event))

    return UplinkInterest(
        bundled=bundled_contract(),
        contracts=ContractTable(store, settings.contracts_table),
        subscriptions=SubscriptionTable(store, settings.subscriptions_table, log_foreign),
        record=Records(store, settings.desired_table, PUBLISHED),
        send=send,
        clock=system_clock,
        random_bytes=random_bytes,
    )


@logger.inject_lambda_context
def handle(event: dict[str, Any], context: Context) -> dict[str, bool]:  # noqa: ARG001 - Lambda passes both
    """Publish changed filters to devices; return whether there were any."""
    return {"published": service().publish()}
