"""Filters in words, for people."""

from __future__ import annotations

import json

from eventplane.filters import All, Any, Exact, Filter, Not, Prefix, Sql, Suffix

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
