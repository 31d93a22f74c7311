"""The contract that tests of routers, commands and the demo read: the shipped one, as far as they know it.

They expect exact sets of inboxes. A participant that somebody adds to the shipped contract is left out here,
so that it breaks no test. Tests of the shipped contract as a whole read that (`contract.load_contract`).
"""

from functools import cache
from typing import Final

from contract import load_contract
from eventplane.contract import Contract, compile_contract, contract_document
from eventplane.reach import Reachability

PARTICIPANTS: Final = frozenset(
    {"device", "voice-service", "health-service", "activity-service", "climate-service", "call-service"}
    | {"alarm-centre", "care-analytics", "family-app", "operations", "presence-monitor", "carers"}
    | {"downlink", "audit", "subscribers", "canary"}
)
"""The participants that tests know."""


@cache
def shipped_contract() -> Contract:
    """Return the shipped contract as a whole, read once in a process: that takes 0.3 s."""
    return load_contract()


def plane_contract() -> Contract:
    """Return the shipped contract without participants, types and routes that the tests do not know."""
    return known(shipped_contract())


def known(contract: Contract) -> Contract:
    """Return `contract` without other participants, the types that only they send, and their routes."""
    others = contract.participants.keys() - PARTICIPANTS
    if not others:
        return contract
    reach = Reachability(contract)
    strange = {
        each
        for each in contract.event_types
        if (senders := reach.rights.declared_senders(each)) and all(one.name in others for one in senders)
    }
    document = contract_document(contract)
    for name in others:
        del document["participants"][name]
    for name in strange:
        del document["event_types"][name]
    document["routes"] = {
        name: route
        for name, route in document["routes"].items()
        if route["to"].partition(".")[0] not in others
        and (reach.takes[name] - strange or not reach.takes[name])
    }
    return compile_contract(document, "the shipped contract")
