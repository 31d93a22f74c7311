"""The possible answers of a filter when only some attributes of an event are known.

The answers err on one side: they may have one that no event gets, never the other way round, since conditions
that share an unknown attribute count as independent. So "it cannot match" is certain.
"""

from __future__ import annotations

from collections.abc import Mapping

from eventplane.attributes import Attributes, AttributeValue
from eventplane.filters import All, Any, Exact, Filter, Not, Sql

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
    if isinstance(filter, Not):
        return _negated(possible(filter.filter, known))
    if isinstance(filter, All):
        return _all([possible(each, known) for each in filter.filters])
    if isinstance(filter, Any):
        # At least one matches: not all of them fail.
        return _negated(_all([_negated(possible(each, known)) for each in filter.filters]))
    if isinstance(filter, Sql):
        return _possible_sql(filter, known)
    return frozenset({filter.matches(_present(known))}) if filter.attribute in known else _EITHER


def _present(known: Mapping[str, AttributeValue | None]) -> Attributes:
    return {name: value for name, value in known.items() if value is not None}


def _negated(answers: frozenset[bool]) -> frozenset[bool]:
    return frozenset(not each for each in answers)


def _all(parts: list[frozenset[bool]]) -> frozenset[bool]:
    answers = set()
    if all(True in each for each in parts):
        answers.add(True)
    if any(False in each for each in parts):
        answers.add(False)
    return frozenset(answers)


def _possible_sql(filter: Sql, known: Mapping[str, AttributeValue | None]) -> frozenset[bool]:
    # Only a contract with an expression loads the language.
    from eventplane.cesql import tree
    from eventplane.cesql.analysis import outcomes

    expression = filter.expression
    if tree.names(expression.tree) <= known.keys():
        # Exactly: `outcomes` judges a part of an expression, where the String 'true' counts as true.
        return frozenset({expression.matches(_present(known))})
    # Of what is absent this knows nothing, and lists too many.
    found = outcomes(expression.tree, _present(known), expression.functions)
    return frozenset(each == "true" for each in found)
