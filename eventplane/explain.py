"""Why an event takes a route, or does not: the filter condition by condition, with the values it met.

`explain` asks each filter itself whether it matches, as the router does; the conditions below say why. Where
the reader of a route has announced what it handles, that is asked as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any as Json

from eventplane.attributes import AttributeValue
from eventplane.contract import Channel, Contract, DeliveryGuarantee, ParticipantKind, Place, Route
from eventplane.envelope import Envelope
from eventplane.filters import All, Any, Attributes, Filter, Not, Sql, comparison_text
from eventplane.guarantee import guarantee_of
from eventplane.interest import is_wanted


@dataclass(frozen=True, slots=True)
class Term:
    """One condition: `text` in words, whether it `matched`, and why.

    `values` are the attributes that the term itself reads, None for a missing one; `terms` the conditions
    that it joins. `gives` and `errors` are an expression's: its value, and what erred, in that order.
    """

    text: str
    matched: bool
    values: Mapping[str, AttributeValue | None]
    gives: AttributeValue | None = None
    errors: tuple[str, ...] = ()
    terms: tuple[Term, ...] = ()

    def document(self) -> dict[str, Json]:
        """The term as JSON; a missing attribute is null."""
        return {
            "text": self.text,
            "matched": self.matched,
            "values": dict(self.values),
            "gives": self.gives,
            "errors": list(self.errors),
            "terms": [each.document() for each in self.terms],
        }


@dataclass(frozen=True, slots=True)
class Explanation:
    """Whether an event takes `route`, and the reasons.

    `guarantee` is that of the delivery. `interest` is what its reader announced (None: nothing); what is not
    `wanted` is not forwarded.
    """

    route: Route
    term: Term
    guarantee: DeliveryGuarantee
    interest: Term | None = None
    wanted: bool = True

    @property
    def matched(self) -> bool:
        return self.term.matched

    @property
    def forwarded(self) -> bool:
        """Whether the event goes to the route's destination, unless it has expired."""
        return self.matched and self.wanted

    def document(self) -> dict[str, Json]:
        """The explanation as JSON."""
        return {
            "route": self.route.name,
            "place": self.route.place.value,
            "to": self.route.destination,
            "matched": self.matched,
            "filter": self.term.document(),
            "interest": self.interest and self.interest.document(),
            "forwarded": self.forwarded,
            "delivery_guarantee": self.guarantee.value,
        }


def explain(contract: Contract, event: Envelope, place: Place | None = None) -> tuple[Explanation, ...]:
    """Every route of `contract`, or of the router of one `place`, by name.

    The channel that an event came over decides about its guarantee, and about its priority where nothing
    else does. It is the outbox of the sender that the event names, otherwise the device's.
    """
    routes = contract.routes if place is None else contract.routes_at(place)
    return tuple(_explanation(contract, each, event) for each in routes)


def _explanation(contract: Contract, route: Route, event: Envelope) -> Explanation:
    over = _channel(contract, event, route.place)
    term = explain_filter(route.filter, event.attributes)
    guarantee = guarantee_of(contract, event, over, route)
    if route.interest is None:
        return Explanation(route, term, guarantee)
    interest = explain_filter(route.interest, event.attributes)
    wanted = is_wanted(route.interest, event, contract.priority(event, over))
    return Explanation(route, term, guarantee, interest, wanted)


def _channel(contract: Contract, event: Envelope, place: Place) -> Channel:
    """Return the channel over which the event comes to the router of `place`."""
    sender = contract.participants.get(event.sender.service)
    decides = ParticipantKind.DEVICE_SERVICE if place is Place.DEVICE else ParticipantKind.CLOUD_SERVICE
    return sender.outbox if sender is not None and sender.kind is decides else contract.device.outbox


def explain_filter(filter: Filter, attributes: Attributes) -> Term:
    """What `filter` makes of an event with these `attributes`, down to its last condition."""
    matched = filter.matches(attributes)
    if isinstance(filter, Not):
        return Term("not", matched, {}, terms=(explain_filter(filter.filter, attributes),))
    if isinstance(filter, All | Any):
        text = "all of" if isinstance(filter, All) else "any of"
        return Term(
            text, matched, {}, terms=tuple(explain_filter(each, attributes) for each in filter.filters)
        )
    if isinstance(filter, Sql):
        # Only a contract with an expression pays for loading the language.
        from eventplane.explain_sql import explain_sql

        return explain_sql(filter.expression, attributes)
    return Term(comparison_text(filter), matched, {filter.attribute: attributes.get(filter.attribute)})


_WIDEST = 60
"""Most characters of the column of terms, so that one long expression does not push all values aside."""


def explanation_table(explanations: Sequence[Explanation]) -> str:
    """The table of `explanations`; the routes that match stand first."""
    if not explanations:
        return "no route is decided here"
    ordered = sorted(explanations, key=lambda each: not each.matched)
    blocks = [(each, [*_rows(each.term, 0), *_interest(each)]) for each in ordered]
    width = min(_WIDEST, max(len(text) for _, rows in blocks for _, text, _ in rows))
    lines = []
    for each, rows in blocks:
        verdict = "MATCHES" if each.matched else "does not match"
        if each.matched and each.interest:
            verdict += ", forwarded" if each.wanted else ", NOT FORWARDED: no interest"
        if each.forwarded and each.guarantee is DeliveryGuarantee.BEST_EFFORT:
            verdict += ", at best effort"
        lines.append(f"{each.route.name} -> {each.route.destination} ({each.route.place}): {verdict}")
        lines += [f"  {mark:<3}  {text:<{width}}  {why}".rstrip() for mark, text, why in rows]
    return "\n".join(lines)


def _interest(explanation: Explanation) -> Iterator[tuple[str, str, str]]:
    if explanation.matched and explanation.interest:
        yield "", "its reader announced", ""
        yield from _rows(explanation.interest, 1)


def _rows(term: Term, depth: int) -> Iterator[tuple[str, str, str]]:
    yield ("yes" if term.matched else "no"), f"{'  ' * depth}{term.text}", "; ".join(_reasons(term))
    for each in term.terms:
        yield from _rows(each, depth + 1)


def _reasons(term: Term) -> Iterator[str]:
    if term.values:
        yield ", ".join(f"{name} {_shown(value)}" for name, value in term.values.items())
    # A Boolean value is the verdict, which stands in front.
    if term.gives is not None and not isinstance(term.gives, bool):
        yield f"gives {json.dumps(term.gives, ensure_ascii=False)}, which is no Boolean"
    yield from term.errors


def _shown(value: object) -> str:
    return "missing" if value is None else f"= {json.dumps(value, ensure_ascii=False)}"
