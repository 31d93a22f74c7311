"""The possible answers of a filter when only some attributes of an event are known.

The answers err on one side: they may have one that no event gets, never the other way round, since conditions
that share an unknown attribute count as independent. So "it cannot match" is certain.
"""

from __future__ import annotations

from collections.abc import Mapping

from eventplane.attributes import Attributes, AttributeValue
from eventplane.filters import All, Any, Combination, Exact, Filter, Not, Term

Takes = Mapping[str, frozenset[str]]
"""The declared event types that each route can take, by its name."""

_EITHER = frozenset({True, False})


def of_type(event_type: str) -> Attributes:
    """Return the attributes that every event of a type has."""
    return {"type": event_type, "specversion": "1.0"}


def can_match(filter: Filter, known: Attributes) -> bool:
    """Return whether some event with the `known` attributes, and any others, could match."""
    return True in possible(filter, known)


def needed(filter: Filter) -> Attributes:
    """Return attributes without which nothing matches: filters that need different values share no event."""
    if isinstance(filter, Exact):
        # An attribute that reads 1 or true may be no String, and then an expression sees another value.
        other = filter.value in ("true", "false") or filter.value.lstrip("-").isdigit()
        return {} if other else {filter.attribute: filter.value}
    if isinstance(filter, All):
        return {name: value for each in filter.filters for name, value in needed(each).items()}
    if isinstance(filter, Any):
        first, *others = map(needed, filter.filters) if filter.filters else ({},)
        return {
            name: value for name, value in first.items() if all(each.get(name) == value for each in others)
        }
    return {}


def possible(filter: Filter, known: Mapping[str, AttributeValue | None]) -> frozenset[bool]:
    """Return the answers that events with the `known` attributes could get; None: the attribute is absent."""
    if isinstance(filter, Term):
        return frozenset({filter.matches(_present(known))}) if filter.attribute in known else _EITHER
    if isinstance(filter, Combination):
        parts = [possible(each, known) for each in filter.filters]
        if isinstance(filter, All):
            return _all(parts)
        # None of them matches, or not none.
        none = _all([*map(_negated, parts)])
        return none if isinstance(filter, Not) else _negated(none)
    if filter.names <= known.keys():
        # Exactly: `outcomes` judges a part of an expression, where the String 'true' counts as true.
        return frozenset({filter.matches(_present(known))})
    # Loaded already where there is an expression, and not needed elsewhere.
    from eventplane.cesql.analysis import outcomes

    # Of what is absent this knows nothing, and lists too many.
    found = outcomes(filter.tree, _present(known))
    return frozenset(each == "true" for each in found)


def _present(known: Mapping[str, AttributeValue | None]) -> Attributes:
    return {name: value for name, value in known.items() if value is not None}


def _negated(answers: frozenset[bool]) -> frozenset[bool]:
    return frozenset(not each for each in answers)


def _all(parts: list[frozenset[bool]]) -> frozenset[bool]:
    can_match, can_fail = all(True in each for each in parts), any(False in each for each in parts)
    return frozenset([True] * can_match + [False] * can_fail)
