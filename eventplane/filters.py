"""Filters over context attributes: the dialects of the CloudEvents Subscriptions API.

`exact`, `prefix`, `suffix` compare attributes as strings; `all`, `any`, `not` combine; `sql` is CESQL v1.0.0.
A filter is a small tree of frozen dataclasses, so that a router can evaluate it and the audit can compile it
for Spark. Also: filters as documents and in words, what they cost at most, and the terms an index looks up.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eventplane.attributes import AttributeValue, attribute_text
from eventplane.limits import MAX_FILTER_STEPS

if TYPE_CHECKING:
    # Whoever reads an expression loads the language; a plane without one starts 10 ms faster.
    from eventplane.cesql import Expression

Attributes = Mapping[str, AttributeValue]


@dataclass(frozen=True, slots=True)
class Exact:
    """The attribute is there and its string equals `value`."""

    attribute: str
    value: str

    def matches(self, attributes: Attributes) -> bool:
        held = attributes.get(self.attribute)
        return held is not None and attribute_text(held) == self.value


@dataclass(frozen=True, slots=True)
class Prefix:
    """The attribute is there and its string starts with `value`."""

    attribute: str
    value: str

    def matches(self, attributes: Attributes) -> bool:
        held = attributes.get(self.attribute)
        return held is not None and attribute_text(held).startswith(self.value)


@dataclass(frozen=True, slots=True)
class Suffix:
    """The attribute is there and its string ends with `value`."""

    attribute: str
    value: str

    def matches(self, attributes: Attributes) -> bool:
        held = attributes.get(self.attribute)
        return held is not None and attribute_text(held).endswith(self.value)


@dataclass(frozen=True, slots=True)
class All:
    """Every one of `filters` matches."""

    filters: tuple[Filter, ...]

    def matches(self, attributes: Attributes) -> bool:
        return all(each.matches(attributes) for each in self.filters)


@dataclass(frozen=True, slots=True)
class Any:
    """At least one of `filters` matches."""

    filters: tuple[Filter, ...]

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
    """The filter as the Subscriptions API writes it: the inverse of reading it from a contract."""
    if isinstance(filter, Not):
        return {"not": to_document(filter.filter)}
    if isinstance(filter, Sql):
        return {"sql": filter.expression.text}
    if isinstance(filter, All | Any):
        return {type(filter).__name__.lower(): [to_document(each) for each in filter.filters]}
    return {type(filter).__name__.lower(): {filter.attribute: filter.value}}


_VERBS = {Exact: "is", Prefix: "starts with", Suffix: "ends with"}


def filter_text(filter: Filter) -> str:
    """The whole filter in one line."""
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
    """One comparison: `type starts with "org."`."""
    return f"{filter.attribute} {_VERBS[type(filter)]} {json.dumps(filter.value, ensure_ascii=False)}"


def _inner(filter: Filter) -> str:
    text = filter_text(filter)
    return f"({text})" if isinstance(filter, All | Any | Sql) else text


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


Term = Exact | Prefix | Suffix
Cover = frozenset[Term]


def present(attribute: str) -> Term:
    """The weakest term: the event has the attribute."""
    return Prefix(attribute, "")


def weakness(cover: Cover) -> tuple[int, int, int]:
    """What to sort covers by, the most selective first, when nothing is known of the other routes."""
    shortest = min((len(term.value) for term in cover), default=0)
    return max(map(_kind, cover), default=0), len(cover), -shortest


def either(sides: Iterable[Iterable[Cover]]) -> Iterator[Cover]:
    """The cover, if there is one, of something that matches where at least one of its `sides` does."""
    union: set[Term] = set()
    for covers in sides:
        best = min(covers, key=weakness, default=None)
        if best is None:
            return
        union |= best
    yield frozenset(union)


def _kind(term: Term) -> int:
    if isinstance(term, Exact):
        return 0
    return 1 if term.value else 2
