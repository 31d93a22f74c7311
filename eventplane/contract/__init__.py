"""The contract: the one declaration of participants, channels, event types and routes.

`compile_contract` turns the document people write into a `Contract`; `Contract.canonical` is its compiled
form, which the device image, the functions and the audit load with `load_compiled`.
"""

from typing import TYPE_CHECKING, Any

from eventplane.contract.canonical import load_compiled
from eventplane.contract.errors import ContractError, ContractFormatError, Problem
from eventplane.contract.model import (
    AddressScope,
    Channel,
    Contract,
    DeliveryGuarantee,
    Downlink,
    EventType,
    Forward,
    Ordering,
    Participant,
    ParticipantKind,
    Place,
    Priority,
    Route,
    SchemaCheck,
    Transport,
    Webhook,
    WebhookMode,
    WhenFull,
)

if TYPE_CHECKING:
    from eventplane.contract.compiler import check_compiled, compile_contract, contract_document

__all__ = [
    "AddressScope",
    "Channel",
    "Contract",
    "ContractError",
    "ContractFormatError",
    "DeliveryGuarantee",
    "Downlink",
    "EventType",
    "Forward",
    "Ordering",
    "Participant",
    "ParticipantKind",
    "Place",
    "Priority",
    "Problem",
    "Route",
    "SchemaCheck",
    "Transport",
    "Webhook",
    "WebhookMode",
    "WhenFull",
    "check_compiled",
    "compile_contract",
    "contract_document",
    "load_compiled",
]


def __getattr__(name: str) -> Any:
    """Load the compiler, which a program that only loads contracts need not hold."""
    if name not in __all__:
        raise AttributeError(name)
    from eventplane.contract import compiler

    return getattr(compiler, name)
