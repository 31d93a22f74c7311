"""Filters as documents and as text, and their cost: for what reads and writes contracts and subscriptions."""

from __future__ import annotations

import json

from eventplane.filters import All, Any, Exact, Filter, Not, Prefix, Sql, Suffix
from eventplane.limits import MAX_FILTER_STEPS


def to_document(filter: Filter) -> dict[str, object]:
    """Return the filter as the Subscriptions API writes it: the inverse of reading it from a contract."""
    if isinstance(filter, Not):
        return {"not": to_document(filter.filter)}
    if isinstance(filter, Sql):
        return {"sql": filter.expression.text}
    if isinstance(filter, All | Any):
        return {type(filter).__name__.lower(): [to_document(each) for each in filter.filters]}
    return {type(filter).__name__.lower(): {filter.attribute: filter.value}}


_VERBS = {Exact: "is", Prefix: "starts with", Suffix: "ends with"}


def filter_text(filter: Filter) -> str:
    """Return the filter in words, in one line."""
    if isinstance(filter, Not):
        return f"not {_inner(filter.filter)}"
    if isinstance(filter, All):
        return " and ".join(_inner(each) for each in filter.filters)
    if isinstance(filter, Any):
        return " or ".join(_inner(each) for each in filter.filters)
    if isinstance(filter, Sql):
        return " ".join(filter.expression.text.split())
    return comparison_text(filter)


def comparison_text(filter: Exact | Prefix | Suffix) -> str:
    """Return a comparison in words: `type starts with "org."`."""
    return f"{filter.attribute} {_VERBS[type(filter)]} {json.dumps(filter.value, ensure_ascii=False)}"


def _inner(filter: Filter) -> str:
    text = filter_text(filter)
    return f"({text})" if isinstance(filter, All | Any | Sql) else text


_COMPARISON = 200
_COMBINATION = 100


def steps(filter: Filter) -> int:
    """Return the most steps, a nanosecond each, that `filter` takes for an event of `limits.MAX_EVENT_BYTES`.

    The bound depends on the filter alone. A clock in the evaluation would make device, router and audit
    disagree about an event.
    """
    match filter:
        case All() | Any():
            return _COMBINATION + sum(map(steps, filter.filters))
        case Not():
            return _COMBINATION + steps(filter.filter)
        case Sql():
            # Loaded already where there is an expression, and not needed elsewhere.
            from eventplane.cesql.analysis import cost

            return cost(filter.expression.tree).steps
        case _:
            return _COMPARISON + len(filter.value)


def steps_problem(filter: Filter) -> tuple[str, str] | None:
    """Return why `filter` takes too much work, and the remedy; None if it does not."""
    needed = steps(filter)
    if needed > MAX_FILTER_STEPS:
        return (
            f"it can take {needed:,} steps for one event, more than {MAX_FILTER_STEPS:,}",
            "compare beginnings (LIKE 'x%') instead of searching; change the case of fewer or shorter texts",
        )
    return None
