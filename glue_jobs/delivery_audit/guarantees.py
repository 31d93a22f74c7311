"""The rule of `eventplane.guarantee` as Spark columns: which deliveries a router may have dropped."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import Column
from pyspark.sql import functions as sf

from eventplane.contract import Contract, DeliveryGuarantee, Place
from eventplane.guarantee import decide
from eventplane.sending import PLANE_TYPES
from glue_jobs.delivery_audit.contracts import ContractHistory


def is_best_effort(
    history: ContractHistory, version: Column, route: Column, type: Column, *, asked: bool
) -> Column:
    """Whether a device's event of `type` is at best effort on a `route` of the contract `version`.

    `asked`: whether the event asks for it itself. False for a route that the contract does not have.
    """
    declared = {
        f"{contract.version} {each.name}": str(each.delivery_guarantee)
        for contract in history.contracts
        for each in contract.event_types.values()
        if each.delivery_guarantee
    }
    by_type = sf.lit("")
    if declared:
        pairs = sf.create_map(*(sf.lit(each) for pair in declared.items() for each in pair))
        by_type = sf.coalesce(pairs[sf.concat_ws(" ", version, type)], sf.lit(""))
    found = [each for contract in history.contracts for each in _best_effort(contract, asked)]
    is_found = sf.concat_ws(" ", version, route, by_type).isin(found)
    return sf.coalesce(is_found & ~type.isin(*PLANE_TYPES), sf.lit(False))


def _best_effort(contract: Contract, asked: bool) -> Iterator[str]:
    """The version, each route, and what an event's type may declare for its delivery to be best effort."""
    by_event = DeliveryGuarantee.BEST_EFFORT if asked else None
    declared = {None, *(each.delivery_guarantee for each in contract.event_types.values())}
    for route in contract.routes_at(Place.CLOUD):
        channels = [
            each.delivery_guarantee for each in (contract.device.outbox, contract.channel(route.destination))
        ]
        for by_type in declared:
            if decide(channels, by_event, route.delivery_guarantee, by_type) is DeliveryGuarantee.BEST_EFFORT:
                yield f"{contract.version} {route.name} {by_type or ''}"
