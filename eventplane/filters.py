"""Filters over context attributes: the dialects of the CloudEvents Subscriptions API.

`exact`, `prefix`, `suffix` compare attributes as strings; `all`, `any`, `not` combine; `sql` is CESQL v1.0.0,
whose `Expression` is a filter, and the root of a tree of its own (`eventplane.cesql.tree`). These nodes give
true or false for every event, and those of an expression may err (docs/adr/0062-one-filter-tree.md).
`eventplane.filter_texts` has filters as documents and as text, and their cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias
from typing import Any as Anything

from eventplane.attributes import Attributes, attribute_text

if TYPE_CHECKING:
    # Only a contract with an expression loads the language, which takes 10 ms.
    from eventplane.cesql import Expression


@dataclass(frozen=True, slots=True)
class Term:
    """A comparison of the string of `attribute` with `value`; false where the event lacks the attribute."""

    attribute: str
    value: str


class Exact(Term):
    """The attribute's string equals `value`."""

    __slots__ = ()

    def matches(self, attributes: Attributes) -> bool:
        held = attributes.get(self.attribute)
        return held is not None and attribute_text(held) == self.value


class Prefix(Term):
    """The attribute's string starts with `value`."""

    __slots__ = ()

    def matches(self, attributes: Attributes) -> bool:
        held = attributes.get(self.attribute)
        return held is not None and attribute_text(held).startswith(self.value)


class Suffix(Term):
    """The attribute's string ends with `value`."""

    __slots__ = ()

    def matches(self, attributes: Attributes) -> bool:
        held = attributes.get(self.attribute)
        return held is not None and attribute_text(held).endswith(self.value)


@dataclass(frozen=True, slots=True)
class Combination:
    """Base of `all`, `any` and `not`, which has one filter."""

    filters: tuple[Filter, ...]


class All(Combination):
    """Every one of `filters` matches."""

    __slots__ = ()

    def matches(self, attributes: Attributes) -> bool:
        return all(each.matches(attributes) for each in self.filters)


class Any(Combination):
    """At least one of `filters` matches."""

    __slots__ = ()

    def matches(self, attributes: Attributes) -> bool:
        return any(each.matches(attributes) for each in self.filters)


class Not(Combination):
    """The one of `filters` does not match."""

    __slots__ = ()

    def __init__(self, filter: Filter) -> None:
        Combination.__init__(self, (filter,))

    def matches(self, attributes: Attributes) -> bool:
        return not self.filters[0].matches(attributes)


Filter: TypeAlias = "Exact | Prefix | Suffix | All | Any | Not | Expression"

COMPARISONS: dict[str, type[Exact] | type[Prefix] | type[Suffix]] = {
    "exact": Exact,
    "prefix": Prefix,
    "suffix": Suffix,
}
COMBINATIONS: dict[str, type[All] | type[Any]] = {"all": All, "any": Any}
DIALECTS = (*COMPARISONS, *COMBINATIONS, "not", "sql")


def from_document(document: dict[str, Anything]) -> Filter:
    """Return the filter that `to_document` wrote. Raises `CesqlParseError`, ValueError and the like."""
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
    return expression


def attribute_names(filter: Filter) -> frozenset[str]:
    """Return the names of the attributes that `filter` looks at: no other one changes its answer."""
    if isinstance(filter, Combination):
        return frozenset().union(*map(attribute_names, filter.filters))
    return frozenset((filter.attribute,)) if isinstance(filter, Term) else filter.names
