"""Events that the control room offers to send: one of each declared type and sender of any contract."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from contract.example import NoExampleError, example_of
from contract.explain import outcomes
from eventplane.contract import Contract, Downlink, Priority
from eventplane.device_reports import PLANE_TYPES
from eventplane.envelope import Envelope, write_event
from eventplane.names import OWN_SERVICES, REPLY_TYPE
from eventplane.payloads import schemas_of
from eventplane.sending import SendingRights
from eventplane.values import timestamp


@dataclass(frozen=True, slots=True)
class Offer:
    """An `event` of a `type` that `sender` declares, without id and time; `problem`: why without payload.

    `is_received` says whether a route takes it to an inbox.
    """

    sender: str
    type: str
    priority: Priority
    event: Mapping[str, Any]
    is_received: bool
    problem: str = ""


_EXAMPLE = "example", datetime.fromtimestamp(0, UTC)
"""Id and time of an event that is only looked at."""


def offers(contract: Contract, home: str) -> tuple[Offer, ...]:
    """Return what the services of `home` and of the cloud can send, first what is urgent and received."""
    rights, schemas = SendingRights(contract), schemas_of(contract)
    types = [each for each in contract.event_types if each not in PLANE_TYPES and each != REPLY_TYPE]
    found = [
        _offer(contract, home, type, each.name, schemas)
        for type in types
        for each in rights.declared_senders(type) or rights.senders(type)
        if each is not contract.device and not each.retired and each.name not in OWN_SERVICES
    ]
    return tuple(sorted(found, key=lambda each: (each.priority is not Priority.URGENT, not each.is_received)))


def _offer(
    contract: Contract, home: str, type: str, sender: str, known: Mapping[str, Mapping[str, Any]]
) -> Offer:
    participant, schemas = contract.participants[sender], contract.event_types[type].schemas
    source = f"/homes/{home}/{sender}" if participant.kind.is_on_device else f"/{sender}"
    event: dict[str, Any] = {"type": type, "source": source}
    data, problem = None, ""
    if schemas:
        event["dataschema"] = list(schemas)[-1]
        try:
            data = example_of(event["dataschema"], known)
        except NoExampleError as error:
            problem = str(error)
    (outcome,) = outcomes(contract, completed(contract, event, *_EXAMPLE), sender)
    if outcome.not_down:
        event["todevice"] = home
        if contract.downlink(type) is Downlink.STATE:
            event["statekey"] = f"{sender}/example/1"
    event["data"] = data if schemas else {}
    priority = contract.priority(completed(contract, event, *_EXAMPLE), participant.outbox)
    is_received = bool(outcome.receipts or outcome.not_down)
    return Offer(sender, type, priority, event, is_received, problem)


def completed(contract: Contract, event: Mapping[str, Any], id: str, now: datetime) -> Envelope:
    """Return `event` with an `id`, the time `now`, and the newest version of a state, where it has none.

    Raises `EnvelopeError` for what is no event.
    """
    at = timestamp(now)
    whole = {"id": id, "time": at, "recordedtime": at, **event}
    if "statekey" in event and contract.downlink(str(event.get("type"))) is Downlink.STATE:
        whole.setdefault("stateversion", str(round(now.timestamp() * 1_000)))
    data = whole.pop("data", None)
    return write_event(whole, data)
