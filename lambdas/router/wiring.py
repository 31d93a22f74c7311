"""The wiring of functions that follow the contract in force, from the settings that they share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Self

from eventplane.contract import Channel, Contract, ParticipantKind, Priority
from eventplane.contract.publication import ContractTable, Head, written_channels
from eventplane.contract.subscription_table import SubscriptionTable
from eventplane.function_settings import ContractSettings, RouterSettings
from eventplane.interest.table import InterestTable
from eventplane.records import Tables
from eventplane.resource_names import ANY, channel_url
from lambdas.common.aws import PATIENT, QUICK, Timeouts
from lambdas.common.log import log_foreign
from lambdas.common.system import cpu_time, system_clock
from lambdas.router import engine
from lambdas.router.active_contract import ActiveContract, Engine
from lambdas.router.payload import MESSAGE_SECONDS, URGENT_MESSAGE_SECONDS


def contract_in_force(
    bundled: Contract,
    settings: ContractSettings,
    tables: Tables,
    build: Callable[[Contract], Engine],
    queues: Collection[str] | None = None,
    under: Callable[[Engine, Head, Contract | None, Engine | None], Engine] | None = None,
) -> ActiveContract[Engine]:
    """Return what `build` makes of the contract in force, read from `tables`; `bundled` is the one with the
    code.

    `queues` are the inboxes, by their address, that it can lead to; None where nobody writes to them.
    `under` is `ActiveContract`'s: without it there is no candidate. Raises what `build` raises of `bundled`.
    """
    return ActiveContract(
        bundled=bundled,
        build=build,
        table=ContractTable(tables, settings.contracts_table),
        subscriptions=SubscriptionTable(tables, settings.subscriptions_table, log_foreign),
        interest=InterestTable(tables, settings.interest_table, log_foreign),
        refresh_ms=1_000 * settings.contract_refresh_s,
        clock=system_clock,
        queues=queues,
        under=under,
    )


@dataclass(frozen=True, slots=True)
class Channels:
    """The channels of a router: its `sources` by their queues, and the URL of each inbox by its address.

    A lone source stands under "", whatever queue feeds it.
    """

    sources: Mapping[str, Channel]
    inboxes: Mapping[str, str]

    @classmethod
    def of(cls, settings: RouterSettings, contract: Contract) -> Self:
        """Return those that `settings` mean, in the `contract` that came with the code."""
        inboxes = dict(settings.queues)
        if pattern := inboxes.pop(ANY, None):
            others = {each.address: channel_url(pattern, each) for each in written_channels(contract)}
            inboxes = others | inboxes
        if settings.source != ANY or pattern is None:
            return cls({"": contract.channel(settings.source)}, inboxes)
        outboxes = (each.outbox for each in contract.of_kind(ParticipantKind.CLOUD_SERVICE))
        sources = {channel_url(pattern, each).rpartition("/")[2]: each for each in outboxes}
        return cls(sources, inboxes)

    def source(self, queue: str) -> Channel:
        """Return what the messages of the queue of that name came over."""
        return self.sources.get(queue) or self.sources[""]


def engine_in_force(
    bundled: Contract,
    settings: RouterSettings,
    tables: Tables,
    channels: Channels,
    payload_s: float = MESSAGE_SECONDS,
) -> ActiveContract[engine.RoutingEngine]:
    """The router's engine of the contract in force. Raises what `build_engine` raises of the `bundled` one.

    The payloads of a message may take `payload_s` of computing time.
    """
    sources = [each.address for each in channels.sources.values()]

    def build(contract: Contract) -> engine.RoutingEngine:
        return engine.build_engine(contract, sources, channels.inboxes, cpu_time, payload_s)

    return contract_in_force(bundled, settings, tables, build, channels.inboxes, engine.RoutingEngine.under)


def patience_of(priority: Priority) -> tuple[Timeouts, float]:
    """Return how long calls take, and the payloads of a message, seconds, in a router of this `priority`."""
    if priority is Priority.URGENT:
        return QUICK, URGENT_MESSAGE_SECONDS
    return PATIENT, MESSAGE_SECONDS
