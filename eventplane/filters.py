"""Filters over context attributes: the dialects of the CloudEvents Subscriptions API.

`exact`, `prefix`, `suffix` compare attributes as strings; `all`, `any`, `not` combine; `sql` is CESQL v1.0.0.
A filter is a small tree of frozen dataclasses, so that a router can evaluate it and the audit can compile it
for Spark. This file also has filters as documents and as text, and their cost.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import Any as Anything

from eventplane.attributes import Attributes, attribute_text
from eventplane.limits import MAX_FILTER_STEPS

if TYPE_CHECKING:
    # Only a contract with an expression loads the language, which takes 10 ms.
    from eventplane.cesql import Expression


@dataclass(frozen=True, slots=True)
class _Comparison:
    """A comparison of the string of `attribute` with `value`; false where the event lacks the attribute."""

    attribute: str
    value: str


class Exact(_Comparison):
    """The attribute's string equals `value`."""

    __slots__ = ()

    def matches(self, attributes: Attributes) -> bool:
        held = attributes.get(self.attribute)
        return held is not None and attribute_text(held) == self.value


class Prefix(_Comparison):
    """The attribute's string starts with `value`."""

    __slots__ = ()

    def matches(self, attributes: Attributes) -> bool:
        held = attributes.get(self.attribute)
        return held is not None and attribute_text(held).startswith(self.value)


class Suffix(_Comparison):
    """The attribute's string ends with `value`."""

    __slots__ = ()

    def matches(self, attributes: Attributes) -> bool:
        held = attributes.get(self.attribute)
        return held is not None and attribute_text(held).endswith(self.value)


@dataclass(frozen=True, slots=True)
class _Combination:
    """Base of `all` and `any`."""

    filters: tuple[Filter, ...]


class All(_Combination):
    """Every one of `filters` matches."""

    __slots__ = ()

    def matches(self, attributes: Attributes) -> bool:
        return all(each.matches(attributes) for each in self.filters)


class Any(_Combination):
    """At least one of `filters` matches."""

    __slots__ = ()

    def matches(self, attributes: Attributes) -> bool:
        return any(each.matches(attributes) for each in self.filters)


@dataclass(frozen=True, slots=True)
class Not:
    """`filter` does not match."""

    filter: Filter

    def matches(self, attributes: Attributes) -> bool:
        return not self.filter.matches(attributes)


@dataclass(frozen=True, slots=True)
class Sql:
    """The CESQL `expression` gives true without an error."""

    expression: Expression

    def matches(self, attributes: Attributes) -> bool:
        return self.expression.matches(attributes)


Filter = Exact | Prefix | Suffix | All | Any | Not | Sql

COMPARISONS: dict[str, type[Exact] | type[Prefix] | type[Suffix]] = {
    "exact": Exact,
    "prefix": Prefix,
    "suffix": Suffix,
}
COMBINATIONS: dict[str, type[All] | type[Any]] = {"all": All, "any": Any}
DIALECTS = (*COMPARISONS, *COMBINATIONS, "not", "sql")


def to_document(filter: Filter) -> dict[str, object]:
    """Return the filter as the Subscriptions API writes it: the inverse of reading it from a contract."""
    if isinstance(filter, Not):
        return {"not": to_document(filter.filter)}
    if isinstance(filter, Sql):
        return {"sql": filter.expression.text}
    if isinstance(filter, All | Any):
        return {type(filter).__name__.lower(): [to_document(each) for each in filter.filters]}
    return {type(filter).__name__.lower(): {filter.attribute: filter.value}}


def from_document(document: dict[str, Anything]) -> Filter:
    """Return the filter that `to_document` has written. Raises `CesqlParseError`, ValueError and the like."""
    ((dialect, body),) = document.items()
    if dialect in COMPARISONS:
        ((attribute, value),) = body.items()
        if not isinstance(value, str):
            raise TypeError(f"{value!r:.100} is no text")
        return COMPARISONS[dialect](attribute, value)
    if dialect in COMBINATIONS and body:
        return COMBINATIONS[dialect](tuple(map(from_document, body)))
    if dialect == "not":
        return Not(from_document(body))
    if dialect != "sql":
        raise ValueError(f"{dialect!r} is no filter, or an empty one")
    from eventplane.cesql import missing_functions, parse

    expression = parse(body)
    if missing := missing_functions(expression):
        raise ValueError(missing[0].message)
    return Sql(expression)


def attribute_names(filter: Filter) -> frozenset[str]:
    """Return the names of the attributes that `filter` looks at: no other one changes its answer."""
    match filter:
        case All() | Any():
            return frozenset().union(*map(attribute_names, filter.filters))
        case Not():
            return attribute_names(filter.filter)
        case Sql():
            # Loaded already where there is an expression, and not needed elsewhere.
            from eventplane.cesql import tree

            return tree.names(filter.expression.tree)
        case _:
            return frozenset((filter.attribute,))


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
