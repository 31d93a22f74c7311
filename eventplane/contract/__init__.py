"""The contract: the one declaration of participants, channels, event types and routes.

`compile_contract` turns the document people write into a `Contract`; `Contract.canonical` is its compiled
form, which the device image, the functions and the audit load with `load_compiled`.
"""

from eventplane.contract.compiler import compile_contract, contract_document, load_compiled
from eventplane.contract.model import (
    ALL_PERCENT,
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
from eventplane.contract.reader import ContractError, ContractFormatError, Problem

__all__ = [
    "ALL_PERCENT",
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
    "compile_contract",
    "contract_document",
    "load_compiled",
]
