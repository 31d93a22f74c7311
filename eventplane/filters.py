"""Filters over context attributes: the dialects of the CloudEvents Subscriptions API.

`exact`, `prefix`, `suffix` compare attributes as strings; `all`, `any`, `not` combine; `sql` is CESQL v1.0.0.
A filter is a small tree of frozen dataclasses, so that a router can evaluate it and the audit can compile it
for Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eventplane.attributes import AttributeValue, attribute_text

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
