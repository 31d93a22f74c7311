"""Explanations as a plain-text table: a block a route, a line a term."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from eventplane.contract import DeliveryGuarantee
from eventplane.explain import Explanation, Term

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
