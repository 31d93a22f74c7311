"""A subscription as the API's callers write and read it (CloudEvents Subscriptions API, 0.1-wip, 3.2.1)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from eventplane.contract import Problem
from eventplane.contract.canonical import canonical_bytes
from eventplane.contract.filter_reader import read_filter
from eventplane.contract.subscription import Subscription
from eventplane.uri import is_uri_reference
from lambdas.subscriptions_api.errors import InvalidError

SQS: Final = "SQS"
PROTOCOLS: Final = (SQS,)
"""How events can be delivered, written exactly so."""

EVERYTHING: Final = {"sql": "TRUE"}
"""What a subscription without source, types and filters takes."""

_PROPERTIES: Final = ("source", "types", "config", "filters", "sink", "protocol", "protocolsettings")
_EMPTY: Final = {
    "config": "the routes of the plane have no settings; leave it out",
    "protocolsettings": "the protocol has no settings; leave it out",
}


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a caller asked for: `filter` says the same as source, types and filters of `document` together."""

    document: dict[str, Any]
    filter: dict[str, Any]

    @property
    def text(self) -> str:
        """The document as canonical JSON."""
        return canonical_bytes(self.document).decode()


def read_proposal(proposed: object, inbox: str) -> Proposal:
    """What `proposed` asks for; `inbox` is the ARN of the caller's own queue. Raises `InvalidError`."""
    if not isinstance(proposed, dict):
        raise InvalidError("the body is not a JSON object; send one subscription")
    problems = [
        Problem(name, "it is no property of a subscription", f"use {', '.join(_PROPERTIES)}")
        for name in proposed
        if name not in (*_PROPERTIES, "id")
    ]
    problems += [
        Problem(name, "it is not empty, or no object", remedy)
        for name, remedy in _EMPTY.items()
        if proposed.get(name, {}) != {}
    ]
    parts = [
        *_source(proposed, problems),
        *_types(proposed, problems),
        *_filters(proposed, problems),
    ]
    _sink(proposed, inbox, problems)
    if problems:
        raise InvalidError("the subscription is not valid; see `problems`", problems)
    document = {name: proposed[name] for name in _PROPERTIES if name in proposed and name not in _EMPTY}
    filter = EVERYTHING if not parts else parts[0] if len(parts) == 1 else {"all": parts}
    return Proposal({**document, "filters": proposed.get("filters", [])}, filter)


def written(subscription: Subscription, inbox: str) -> dict[str, Any]:
    """The subscription as callers read it; one that a participant wrote himself leads to `inbox`."""
    document = (
        json.loads(subscription.document)
        if subscription.document
        else {"filters": [json.loads(subscription.filter)], "sink": inbox, "protocol": SQS}
    )
    return {"id": subscription.name, **document}


def _source(proposed: dict[str, Any], problems: list[Problem]) -> list[dict[str, Any]]:
    if "source" not in proposed:
        return []
    source = proposed["source"]
    if not isinstance(source, str) or not is_uri_reference(source):
        problems.append(Problem("source", "it is no URI-reference", "write the events' `source`"))
    return [{"exact": {"source": source}}]


def _types(proposed: dict[str, Any], problems: list[Problem]) -> list[dict[str, Any]]:
    if "types" not in proposed:
        return []
    types = proposed["types"]
    if not isinstance(types, list) or not types or not all(isinstance(each, str) and each for each in types):
        problems.append(Problem("types", "it is no list of types", "write the events' `type`s, at least one"))
        return []
    return [{"any": [{"exact": {"type": each}} for each in types]}]


def _filters(proposed: dict[str, Any], problems: list[Problem]) -> list[dict[str, Any]]:
    filters = proposed.get("filters", [])
    if not isinstance(filters, list):
        problems.append(Problem("filters", "it is no list", "write a list of filters"))
        return []
    for at, each in enumerate(filters):
        read_filter(each, f"filters[{at}]", problems)
    return filters


def _sink(proposed: dict[str, Any], inbox: str, problems: list[Problem]) -> None:
    protocol, sink = proposed.get("protocol"), proposed.get("sink")
    if protocol not in PROTOCOLS:
        known = ", ".join(PROTOCOLS)
        problems.append(Problem("protocol", f"{protocol!r} is not supported", f"use one of: {known}"))
    elif sink != inbox:
        message = "it is missing" if sink is None else "it is not the participant's own inbox"
        problems.append(Problem("sink", message, f"write {inbox}"))
