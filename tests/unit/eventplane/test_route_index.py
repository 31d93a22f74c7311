"""Only candidates are asked. That the answer is right is tests/property/test_route_index.py."""

from __future__ import annotations

import pytest

from eventplane.attributes import AttributeValue
from eventplane.cesql import parse
from eventplane.contract import Place, Route
from eventplane.filters import All, Any, Exact, Filter, Not, Prefix, Sql, Suffix
from eventplane.route_index import RouteIndex, covers


class NeverAsked:
    """A condition that stands behind terms which do not hold."""

    def matches(self, attributes: dict[str, AttributeValue]) -> bool:
        raise AssertionError("a route was asked that is no candidate")


def index_of(*filters: Filter) -> RouteIndex:
    return RouteIndex([Route(f"r{at}", each, "desk.inbox", Place.CLOUD) for at, each in enumerate(filters)])


def test_routes_of_one_type_are_indexed_by_their_rarer_term() -> None:
    index = index_of(
        *(All((Exact("type", "t"), Prefix("subject", f"/{room}/"), NeverAsked())) for room in "abcdef")
    )
    assert index.matching({"type": "t", "subject": "/z/door"}) == ()


def test_a_condition_behind_an_alternative_is_asked_for_its_candidates_only() -> None:
    either = Any((Exact("type", "t"), Suffix("source", "/x")))
    index = index_of(All((either, NeverAsked())))
    assert index.matching({"type": "other", "source": "/y"}) == ()
    with pytest.raises(AssertionError):
        index.matching({"type": "other", "source": "/x"})


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("type = 'x'", {Exact("type", "x")}),
        ("TYPE LIKE 'x%'", {Prefix("type", "x")}),
        ("type LIKE '%x'", {Suffix("type", "x")}),
        (r"type LIKE '100\%'", {Exact("type", "100%")}),
        ("type IN ('x', 'y')", {Exact("type", "x"), Exact("type", "y")}),
        ("n > 3 AND type = 'x'", {Exact("type", "x")}),
        ("type = 'x' OR source LIKE '/a/%'", {Exact("type", "x"), Prefix("source", "/a/")}),
        ("'05' = n", {Exact("n", "05"), Exact("n", "5")}),
        ("EXISTS n", {Prefix("n", "")}),
    ],
)
def test_an_expression_is_filed_under_what_it_implies(text: str, terms: set[Filter]) -> None:
    assert terms in list(covers(Sql(parse(text))))


@pytest.mark.parametrize(
    "filter",
    [
        Not(Exact("type", "x")),
        All(()),
        Any((Exact("type", "x"), Not(Exact("type", "y")))),
        Sql(parse("type != 'x'")),
        Sql(parse("type = 'x' OR true")),
        Sql(parse("EXISTS source")),
    ],
)
def test_a_filter_without_a_cover_is_evaluated_for_every_event(filter: Filter) -> None:
    assert list(covers(filter)) == []
    assert len(index_of(filter).matching({"type": "z", "source": "/a"})) == 1


def test_ten_thousand_routes_are_searched_without_asking_them() -> None:
    index = index_of(
        *(All((Prefix("subject", f"/homes/{home:05}/"), NeverAsked())) for home in range(10_000)),
        Prefix("subject", "/homes/"),
    )
    assert [each.name for each in index.matching({"subject": "/homes/x/door"})] == ["r10000"]
