"""Filters as documents and as text, and their cost: for what reads and writes contracts and subscriptions."""

from __future__ import annotations

import json

from eventplane.filters import All, Combination, Exact, Filter, Not, Prefix, Suffix, Term


def to_document(filter: Filter) -> dict[str, object]:
    """Return the filter as the Subscriptions API writes it: the inverse of reading it from a contract."""
    dialect = type(filter).__name__.lower()
    match filter:
        case Term():
            return {dialect: {filter.attribute: filter.value}}
        case Not():
            return {dialect: to_document(*filter.filters)}
        case Combination():
            return {dialect: [*map(to_document, filter.filters)]}
        case _:
            return {"sql": filter.text}


_VERBS = {Exact: "is", Prefix: "starts with", Suffix: "ends with"}


def filter_text(filter: Filter) -> str:
    """Return the filter in words, in one line: `type starts with "org."`."""
    match filter:
        case Term():
            value = json.dumps(filter.value, ensure_ascii=False)
            return f"{filter.attribute} {_VERBS[type(filter)]} {value}"
        case Not():
            return f"not {_inner(*filter.filters)}"
        case Combination():
            return f" {'and' if isinstance(filter, All) else 'or'} ".join(map(_inner, filter.filters))
        case _:
            return " ".join(filter.text.split())


def _inner(filter: Filter) -> str:
    text = filter_text(filter)
    return text if isinstance(filter, Term | Not) else f"({text})"


_COMPARISON = 200
_COMBINATION = 100


def steps(filter: Filter) -> int:
    """Return the most steps, a nanosecond each, that `filter` takes for an event of `limits.MAX_EVENT_BYTES`.

    The bound depends on the filter alone. A clock in the evaluation would make device, router and audit
    disagree about an event.
    """
    match filter:
        case Term():
            return _COMPARISON + len(filter.value)
        case Combination():
            return _COMBINATION + sum(map(steps, filter.filters))
        case _:
            # Loaded already where there is an expression, and not needed elsewhere.
            from eventplane.cesql.analysis import cost

            return cost(filter.tree).steps
