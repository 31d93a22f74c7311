"""A subscription as the API's callers write and read it (CloudEvents Subscriptions API, 0.1-wip, 3.2.1)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from eventplane.attributes import is_uri_reference
from eventplane.contract import Problem
from eventplane.contract.canonical import canonical_bytes
from eventplane.contract.filter_reader import read_filter
from eventplane.contract.subscription import HTTP, SQS, Subscription
from eventplane.names import SUBSCRIBERS
from eventplane.sinks import SinkReach, SinkScope
from parts.subscriptions_api.errors import InvalidError
from parts.webhooks.handshake import MAX_RATE

PROTOCOLS: Final = (SQS, HTTP)
"""How events can be delivered, written exactly so."""

EVERYTHING: Final = {"sql": "TRUE"}
"""What a subscription without source, types and filters takes."""

_PROPERTIES: Final = ("source", "types", "config", "filters", "sink", "protocol", "protocolsettings")

GRANTED: Final = "effectivefilter"
"""What answers say besides: the filter that routers go by, within what the participant may subscribe to."""

RATE: Final = "requests_per_minute"
"""The only setting of a protocol, HTTP: at most so many requests a minute go to the sink."""

MAX_SINK: Final = 2_000
"""Longest URL of a sink, characters. Ours."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A caller's request: `filter` says the same as source, types and filters of `document` together."""

    document: dict[str, Any]
    filter: dict[str, Any]

    @property
    def text(self) -> str:
        """The document as canonical JSON."""
        return canonical_bytes(self.document).decode()

    @property
    def endpoint(self) -> str | None:
        """The URL that events are posted to, if they are."""
        return str(self.document["sink"]) if self.document["protocol"] == HTTP else None

    @property
    def rate(self) -> int | None:
        """Requests a minute that are asked for at most."""
        rate: int | None = self.document.get("protocolsettings", {}).get(RATE)
        return rate

    def has_consent_of(self, known: Subscription) -> bool:
        """Return whether `known` leads to the same place at the same rate, which was consented to."""
        names = ("protocol", "sink", "protocolsettings")
        return all(self.document.get(each) == known.properties.get(each) for each in names)

    def at_most(self, rate: int | None) -> Proposal:
        """The same with at most `rate` requests a minute; None sets no limit."""
        if rate is None or (self.rate is not None and self.rate <= rate):
            return self
        return replace(self, document={**self.document, "protocolsettings": {RATE: rate}})


def protocols(reach: SinkReach) -> Sequence[str]:
    """Return the ones of `PROTOCOLS` that exist where endpoints may be as far as `reach` says."""
    return PROTOCOLS if reach.sinks is not SinkScope.NOWHERE else (SQS,)


def read_proposal(proposed: object, inbox: str, reach: SinkReach) -> Proposal:
    """Read the request `proposed`; `inbox` is the ARN of the caller's own queue, endpoints may be as far as
    `reach` says. Raises `InvalidError`.
    """
    if not isinstance(proposed, dict):
        raise InvalidError("the body is not a JSON object; send one subscription")
    problems = [
        Problem(name, "it is no property of a subscription", f"use {', '.join(_PROPERTIES)}")
        for name in proposed
        if name not in (*_PROPERTIES, "id", GRANTED)
    ]
    if proposed.get("config", {}) != {}:
        problems.append(Problem("config", "it is not empty, or no object", "leave it out: there is none"))
    parts = [
        *_source(proposed, problems),
        *_types(proposed, problems),
        *_filters(proposed, problems),
    ]
    _sink(proposed, inbox, reach, problems)
    _settings(proposed, problems)
    if problems:
        raise InvalidError("the subscription is not valid; see `problems`", problems)
    # What is empty says nothing, but for the filters, which have a default.
    document = {name: proposed[name] for name in _PROPERTIES if proposed.get(name, {}) != {}}
    filter = EVERYTHING if not parts else parts[0] if len(parts) == 1 else {"all": parts}
    return Proposal({**document, "filters": proposed.get("filters", [])}, filter)


def written(subscription: Subscription, inbox: str, granted: dict[str, Any] | None) -> dict[str, Any]:
    """The subscription as callers read it, and what of it is `granted` (None: nothing).

    One that a participant wrote himself leads to `inbox`.
    """
    own = {"filters": [json.loads(subscription.filter)], "sink": inbox, "protocol": SQS}
    return {"id": subscription.name, **(subscription.properties or own), GRANTED: granted}


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


def _sink(proposed: dict[str, Any], inbox: str, reach: SinkReach, problems: list[Problem]) -> None:
    protocol, sink = proposed.get("protocol"), proposed.get("sink")
    if protocol == HTTP and reach.sinks is SinkScope.NOWHERE:
        message = f"the contract has no participant {SUBSCRIBERS!r}, so nobody posts to endpoints"
        problems.append(Problem("protocol", message, f"have it added and deployed, or use {SQS}"))
    elif protocol not in protocols(reach):
        known = ", ".join(protocols(reach))
        problems.append(Problem("protocol", f"{protocol!r} is not supported", f"use one of: {known}"))
    elif protocol == SQS and sink != inbox:
        message = "it is missing" if sink is None else "it is not the participant's own inbox"
        problems.append(Problem("sink", message, f"write {inbox}"))
    elif protocol == HTTP:
        if not isinstance(sink, str) or len(sink) > MAX_SINK:
            message = f"it is no text of at most {MAX_SINK} characters"
        else:
            message = reach.url_problem(sink) or ""
        if message:
            problems.append(Problem("sink", message, "write the https:// URL of the endpoint"))


def _settings(proposed: dict[str, Any], problems: list[Problem]) -> None:
    settings = proposed.get("protocolsettings", {})
    known = {RATE} if proposed.get("protocol") == HTTP else set()
    if not isinstance(settings, dict) or not settings.keys() <= known:
        remedy = f"HTTP has {RATE}, SQS has none; requests are always POSTs, and signed"
        problems.append(Problem("protocolsettings", "there is no such setting", remedy))
        return
    rate = settings.get(RATE, 1)
    if type(rate) is not int or not 0 < rate <= MAX_RATE:
        path = f"protocolsettings.{RATE}"
        problems.append(Problem(path, f"{rate!r} is no such number", f"write a number from 1 to {MAX_RATE}"))
