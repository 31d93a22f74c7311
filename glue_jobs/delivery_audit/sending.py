"""The sending rights of `eventplane.sending` as Spark columns, by which the audit judges deliveries."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as sf

from eventplane.contract import Contract, Participant, ParticipantKind
from eventplane.conversation.attributes import REPLY_TYPE
from eventplane.delivery import DEAD_LETTER_TYPE
from eventplane.device_reports import forwarder_source, router_source
from eventplane.sender import PLANE
from eventplane.sending import DEVICE_REPORTS, DEVICE_STATES, OWNERS
from glue_jobs.delivery_audit.contracts import ContractHistory

# Stands for the device's name in the sources that a forwarder writes.
_THING = "*"


def may_send(
    history: ContractHistory, version: Column, sender: Column, type: Column, source: Column
) -> Column:
    """Whether the contract `version` lets `sender` send such an event; true for a contract that is not known.

    A dead letter's own words are not in the ledger: of a service's, the channel is not judged.
    """
    by_contract = [(each.version, _may_send(each, sender, type, source)) for each in history.contracts]
    return _case(version, by_contract, sf.lit(True))


def _may_send(contract: Contract, sender: Column, type: Column, source: Column) -> Column:
    participants = contract.participants.values()
    on_device = [each for each in participants if each.kind.is_on_device]
    is_declared = _any(_named(each, type) for each in participants)

    def allowed(*senders: Participant) -> Column:
        return _type_allowed(senders, type, is_declared)

    device = sf.substring_index(sender, "/", 1)
    # All behind the first slash: a device can write another into the service that it names.
    service = sf.substr(sender, sf.length(device) + 2, sf.length(sender))
    services = [(each.name, allowed(each)) for each in on_device]
    from_device = _case(service, [("", allowed(*on_device)), *services], sf.lit(False))
    itself = service.isin("", contract.device.name)
    claims = (
        sf.when(type.isin(*DEVICE_REPORTS), source == _source(forwarder_source(_THING), device))
        .when((type == DEAD_LETTER_TYPE) & itself, source == _source(router_source(_THING), device))
        .otherwise(sf.lit(True))
    )
    from_cloud = _case(sender, [(each.name, allowed(each)) for each in participants], sf.lit(False))
    return sf.when(sender == PLANE, sf.lit(True)).otherwise(
        sf.when(sender.contains("/"), from_device & claims).otherwise(from_cloud)
    )


def _type_allowed(senders: Iterable[Participant], type: Column, is_declared: Column) -> Column:
    """As `SendingRights` decides of a type, before it looks at the event's own words."""
    senders = list(senders)
    is_on_device = all(each.kind.is_on_device for each in senders)
    is_forwarder = any(each.kind is ParticipantKind.DEVICE for each in senders)
    owned = [name for name, owner in OWNERS.items() if [each.name for each in senders] == [owner]]
    named = _any(_named(each, type) for each in senders)
    return (
        sf.when(type.isin(REPLY_TYPE, DEAD_LETTER_TYPE), sf.lit(True))
        .when(type.isin(*DEVICE_REPORTS), sf.lit(is_forwarder))
        .when(type.isin(*OWNERS), type.isin(*owned) if owned else sf.lit(False))
        .when(type.isin(*DEVICE_STATES), sf.lit(not is_on_device) & named)
        .when(named, sf.lit(True))
        .when(is_declared, sf.lit(False))
        .otherwise(sf.lit(any(each.sends is None for each in senders)))
    )


def _named(participant: Participant, type: Column) -> Column:
    return _any(
        type.startswith(each[:-1]) if each.endswith(".*") else type == each
        for each in (*(participant.sends or ()), *participant.asks)
    )


def _any(columns: Iterable[Column]) -> Column:
    return reduce(or_, columns, sf.lit(False))


def _case(key: Column, values: Iterable[tuple[str, Column]], otherwise: Column) -> Column:
    return reduce(lambda rest, each: sf.when(key == each[0], each[1]).otherwise(rest), values, otherwise)


def _source(pattern: str, device: Column) -> Column:
    before, _, after = pattern.partition(_THING)
    return sf.concat(sf.lit(before), device, sf.lit(after))
