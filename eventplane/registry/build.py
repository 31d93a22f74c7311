"""A contract's entities, group by group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from eventplane.contract.canonical import contract_document
from eventplane.contract.model import Contract
from eventplane.contract.reach import Flow, flows
from eventplane.registry.endpoints import endpoint
from eventplane.registry.entities import SPECVERSION, Group, Registry, Resource, entity_id, xid
from eventplane.registry.messages import message, schema_versions
from eventplane.registry.model import EXTENSION

_RIGHTS: Final = ("may_subscribe", "may_address")


def build_registry(contract: Contract) -> Registry:
    """The registry of what `contract` says."""
    flowing = flows(contract)
    group_id = entity_id(contract.name)
    return Registry(
        attributes={
            "specversion": SPECVERSION,
            "registryid": group_id,
            "name": contract.name,
            "labels": {"contractversion": contract.version},
        },
        epoch=int(contract.version[:8], 16),
        groups={
            "endpoints": _endpoints(contract, flowing),
            "messagegroups": {
                group_id: Group(
                    {"name": contract.name, "envelope": "CloudEvents/1.0"},
                    {"messages": _messages(contract, flowing)},
                )
            },
            "participants": _participants(contract),
            "routes": _routes(contract),
            "schemagroups": {group_id: Group({"name": contract.name}, {"schemas": _schemas(contract)})},
        },
    )


def _endpoints(contract: Contract, flowing: Mapping[str, Flow]) -> dict[str, Group]:
    carried: dict[str, list[str]] = {}
    for name, flow in flowing.items():
        for address in _carriers(flow):
            carried.setdefault(address, []).append(name)
    return {
        entity_id(channel.address): Group(
            endpoint(
                contract.participants[channel.participant],
                channel,
                carries=carried.get(channel.address, []),
                messagegroup=xid("messagegroups", contract.name),
            )
        )
        for channel in contract.channels
    }


def _carriers(flow: Flow) -> dict[str, None]:
    """The channels that events of a flow go over, as far as it is declared."""
    addresses = [each.outbox.address for each in flow.senders]
    addresses += [route.destination for way in flow.ways for route in way.routes]
    return dict.fromkeys(addresses)


def _messages(contract: Contract, flowing: Mapping[str, Flow]) -> dict[str, Resource]:
    schemas = f"{xid('schemagroups', contract.name)}/schemas"
    return {
        entity_id(each.name): Resource({"1": message(each, flowing[each.name], schemas)})
        for each in contract.event_types.values()
    }


def _schemas(contract: Contract) -> dict[str, Resource]:
    return {
        entity_id(each.name): Resource(schema_versions(each))
        for each in contract.event_types.values()
        if each.schemas
    }


def _participants(contract: Contract) -> dict[str, Group]:
    written = contract_document(contract)["participants"]
    endpoints: dict[str, dict[str, str]] = {name: {} for name in contract.participants}
    for channel in contract.channels:
        endpoints[channel.participant][channel.box] = xid("endpoints", channel.address)
    return {
        entity_id(each.name): Group(
            {
                "name": each.name,
                "description": each.description,
                EXTENSION: {
                    "kind": each.kind,
                    "retired": each.retired,
                    "endpoints": endpoints[each.name],
                    # Left out where it does not say: that is not the same as nothing.
                    **({} if each.sends is None else {"sends": list(each.sends)}),
                    **({"asks": list(each.asks)} if each.asks else {}),
                    # What it may do beyond its routes, as the contract writes it.
                    **{name: written[each.name][name] for name in _RIGHTS if name in written[each.name]},
                },
            }
        )
        for each in contract.participants.values()
    }


def _routes(contract: Contract) -> dict[str, Group]:
    written = contract_document(contract)["routes"]
    return {
        entity_id(each.name): Group(
            {
                "name": each.name,
                EXTENSION: {
                    **written[each.name],
                    "to": xid("endpoints", each.destination),
                    "decided": each.place,
                },
            }
        )
        for each in contract.routes
    }
