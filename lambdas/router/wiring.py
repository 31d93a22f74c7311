"""What every function needs that goes by the contract in force, from the settings they share."""

from __future__ import annotations

from collections.abc import Callable, Collection

from eventplane.contract import Contract, Priority
from eventplane.contract.publication import ContractTable
from eventplane.contract.subscription_table import SubscriptionTable
from eventplane.function_settings import ContractSettings, RouterSettings
from eventplane.interest.table import InterestTable
from eventplane.records import Tables
from lambdas.common.aws import PATIENT, QUICK, Patience
from lambdas.common.clock import system_clock
from lambdas.common.contracts import bundled_contract
from lambdas.common.log import log_foreign
from lambdas.common.system import cpu_time
from lambdas.router import engine
from lambdas.router.active_contract import ActiveContract, Engine
from lambdas.router.payload import MESSAGE_SECONDS, URGENT_MESSAGE_SECONDS


def contract_in_force(
    settings: ContractSettings,
    tables: Tables,
    build: Callable[[Contract], Engine],
    queues: Collection[str] | None = None,
) -> ActiveContract[Engine]:
    """What `build` makes of the contract in force, which `tables` tell.

    `queues` are the inboxes, by their address, that it can lead to; None where nobody writes to them.
    Raises what `build` raises of the contract that came with the code.
    """
    return ActiveContract(
        bundled=bundled_contract(),
        build=build,
        table=ContractTable(tables, settings.contracts_table),
        subscriptions=SubscriptionTable(tables, settings.subscriptions_table, log_foreign),
        interest=InterestTable(tables, settings.interest_table, log_foreign),
        refresh_ms=1_000 * settings.contract_refresh_s,
        clock=system_clock,
        queues=queues,
    )


def engine_in_force(
    settings: RouterSettings, tables: Tables, payload_s: float = MESSAGE_SECONDS
) -> ActiveContract[engine.Engine]:
    """The router's engine of the contract in force. Raises as `contract_in_force` does.

    The payloads of a message may take `payload_s` of computing time.
    """

    def build(contract: Contract) -> engine.Engine:
        return engine.build_engine(contract, settings.source, settings.queues, cpu_time, payload_s)

    return contract_in_force(settings, tables, build, settings.queues)


def patience_of(priority: Priority) -> tuple[Patience, float]:
    """Return how long calls take, and the payloads of a message, seconds, in a router of this `priority`."""
    if priority is Priority.URGENT:
        return QUICK, URGENT_MESSAGE_SECONDS
    return PATIENT, MESSAGE_SECONDS
