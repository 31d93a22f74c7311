"""What a filter costs at most, and why one is refused for it: decided before any event is there.

A clock in the evaluation would make device, router and audit disagree about an event; a bound on what the
filter says cannot.
"""

from __future__ import annotations

from eventplane.filters import All, Any, Filter, Not, Sql
from eventplane.limits import MAX_FILTER_STEPS

_COMPARISON = 200
_COMBINATION = 100


def steps(filter: Filter) -> int:
    """The most steps that `filter` takes for an event of `limits.MAX_EVENT_BYTES`, a nanosecond each."""
    match filter:
        case All() | Any():
            return _COMBINATION + sum(map(steps, filter.filters))
        case Not():
            return _COMBINATION + steps(filter.filter)
        case Sql():
            # Whoever holds an expression has loaded the language; all others need not.
            from eventplane.cesql.analysis import cost

            return cost(filter.expression.tree).steps
        case _:
            return _COMPARISON + len(filter.value)


def steps_problem(filter: Filter) -> tuple[str, str] | None:
    """Why `filter` would take too much work, and the remedy; None when it does not."""
    needed = steps(filter)
    if needed > MAX_FILTER_STEPS:
        return (
            f"it can take {needed:,} steps for one event, more than {MAX_FILTER_STEPS:,}",
            "compare beginnings (LIKE 'x%') instead of searching; change the case of fewer or shorter texts",
        )
    return None
