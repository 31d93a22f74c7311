"""`eventplane contract explain`: who receives an event, by which routes, and why not by the others."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from contract.explain import Clause, Explanation, Reception, outcomes
from contract.loader import check_payload, load_event
from eventplane.contract import Contract, DeliveryGuarantee, Place
from eventplane.envelope import Envelope
from operations.command import DONE, add_contract, contract_of, present

_WIDEST: Final = 60
"""Most characters of the column of conditions, so that one long expression does not push all values aside."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "event", type=Path, metavar="FILE", help="one event, in JSON or YAML; - for standard input"
    )
    add_contract(parser)
    parser.add_argument(
        "--sender",
        default="",
        metavar="NAME",
        help="the participant that sends it, or DEVICE/NAME; default: by its type",
    )
    parser.add_argument("--matches", action="store_true", help="details of the routes that match only")
    parser.add_argument(
        "--place", choices=[each.value for each in Place], help="details of one router's routes only"
    )


def run(options: argparse.Namespace) -> int:
    """Print who receives an event, and why each route takes it or not."""
    contract, event = contract_of(options), load_event(options.event)
    found = outcomes(contract, event, options.sender, check_payload(contract, event))
    routes = shown_routes(found)
    if options.place:
        routes = tuple(each for each in routes if each.route.place == options.place)
    if options.matches:
        routes = tuple(each for each in routes if each.matched)
    shown = f"{_head(contract, event)}\n{summary(found, routes)}\n\n{explanation_table(routes)}"
    present(options, _document(contract, event, found, routes), shown)
    return DONE


def _document(
    contract: Contract, event: Envelope, found: Sequence[Reception], routes: Sequence[Explanation]
) -> dict[str, Any]:
    return {
        "event": {"source": event.source, "id": event.id, "type": event.type},
        "contract": {"name": contract.name, "version": contract.version},
        "outcomes": [each.document() for each in found],
        "routes": [each.document() for each in routes],
    }


def _head(contract: Contract, event: Envelope) -> str:
    return f"{event.type}, id {event.id} of {event.source}\n{contract.name}, version {contract.version}"


def shown_routes(found: Sequence[Reception]) -> tuple[Explanation, ...]:
    """Return each route once: of the first sender whose event it takes, otherwise of the first one."""
    by_route = zip(*(each.routes for each in found), strict=True)
    return tuple(next((each for each in route if each.matched), route[0]) for route in by_route)


def summary(found: Sequence[Reception], routes: Sequence[Explanation]) -> str:
    """Return the routes that match, and who receives the event from each sender, as text."""
    matching = [each.route.name for each in routes if each.matched]
    lines = [f"routes that match: {', '.join(matching) or 'none'}"]
    senders: dict[tuple[str, ...], list[str]] = {}
    for each in found:
        senders.setdefault(tuple(receivers(each)), []).append(each.sender or "nobody")
    for received, names in senders.items():
        lines += [f"sent by: {', '.join(names)}", *received]
    return "\n".join(lines)


def receivers(outcome: Reception) -> Iterator[str]:
    if outcome.problem:
        yield f"received by: nobody, because {outcome.problem}; {outcome.remedy}"
        return
    yield "received by:"
    for receipt in outcome.receipts:
        way = " -> ".join(hop.route.name for hop in receipt.hops)
        promise = ", at best effort" if receipt.guarantee is DeliveryGuarantee.BEST_EFFORT else ""
        yield f"  {receipt.channel.address} by {way}{promise}"
    if refusal := outcome.refused:
        yield f"received by nobody in the cloud, because it is refused ({refusal.reason}): {refusal.detail}"
    if refusal := outcome.not_down:
        yield f"received by no device, because it is refused ({refusal.reason}): {refusal.detail}"


def explanation_table(explanations: Sequence[Explanation]) -> str:
    """Return a block for each route, a line for each condition; the routes that match are first."""
    if not explanations:
        return "no route to show"
    ordered = sorted(explanations, key=lambda each: not each.matched)
    blocks = [(each, [*_rows(each.condition, 0), *_interest(each)]) for each in ordered]
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


def _rows(condition: Clause, depth: int) -> Iterator[tuple[str, str, str]]:
    mark = "yes" if condition.matched else "no"
    yield mark, f"{'  ' * depth}{condition.text}", "; ".join(_reasons(condition))
    for each in condition.parts:
        yield from _rows(each, depth + 1)


def _reasons(condition: Clause) -> Iterator[str]:
    if condition.values:
        yield ", ".join(f"{name} {_shown(value)}" for name, value in condition.values.items())
    # A Boolean value is the answer, which is the first column.
    if condition.gives is not None and not isinstance(condition.gives, bool):
        yield f"gives {json.dumps(condition.gives, ensure_ascii=False)}, which is no Boolean"
    yield from condition.errors


def _shown(value: object) -> str:
    return "missing" if value is None else f"= {json.dumps(value, ensure_ascii=False)}"
