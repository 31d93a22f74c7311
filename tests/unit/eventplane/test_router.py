"""Which routes a router evaluates and remembers. tests/property/test_route_index.py has the right answers."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import count

import pytest

from eventplane.attributes import AttributeValue
from eventplane.cesql import parse
from eventplane.contract import Place, Route
from eventplane.envelope import Envelope
from eventplane.filters import All, Any, Exact, Filter, Not, Prefix, Suffix
from eventplane.route_index import RouteIndex, covers
from eventplane.router import Router
from lab.benchmarks import workload

CONTRACT = workload.contract(1)


def routes_of(*filters: Filter) -> tuple[Route, ...]:
    return tuple(Route(f"r{at}", each, "desk.inbox", Place.CLOUD) for at, each in enumerate(filters))


def router_of(*filters: Filter) -> Router:
    return Router(replace(CONTRACT, routes=routes_of(*filters)), Place.CLOUD)


def index_of(*filters: Filter) -> RouteIndex:
    return RouteIndex(routes_of(*filters))


def event(**attributes: AttributeValue) -> Envelope:
    return Envelope({"id": "e", "type": "t", **attributes}, "{}")


def test_equal_values_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def matches(_filter: Filter, attributes: Mapping[str, AttributeValue]) -> bool:
        asked.append(attributes["id"])
        return True

    monkeypatch.setattr(Prefix, "matches", matches)
    router = router_of(All((Exact("type", "t"), Prefix("source", "/a"))))
    for number in range(5):
        assert len(router.route(event(id=str(number), source="/a", other=number))) == 1
    assert asked == ["0"]


def test_the_memory_is_bounded_in_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eventplane.router.MAX_REMEMBERED_ROUTINGS", 10)
    router = router_of(Prefix("source", "/a"))
    for number in range(1_000):
        router.route(event(source=f"/a/{number % 30}"))
        assert len(router._remembered) <= 10


def test_the_memory_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 256 * 2_000
    monkeypatch.setattr("eventplane.router.MAX_REMEMBERED_BYTES", most)
    router = router_of(Prefix("source", "/a"))
    for number in range(1_000):
        router._paused = 0
        assert router.route(event(source=f"/a/{number}" + "x" * 1_000))
        assert len(router._remembered) * 1_000 <= router._bytes <= most
    assert len(router._remembered) > 100


def test_an_event_with_a_long_attribute_leaves_the_memory_alone() -> None:
    router = router_of(Prefix("source", "/a"))
    router.route(event(source="/a"))
    for number in range(100):
        router.route(event(source=f"/a/{number}" + "x" * 90_000))
    assert len(router._remembered) == 1


def test_a_memory_that_does_not_pay_is_left_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eventplane.router.MAX_REMEMBERED_ROUTINGS", 10)
    router = router_of(Prefix("id", "e"))
    numbers = count()

    def route(times: int, id: str = "") -> None:
        for _ in range(times):
            assert router.route(event(id=id or f"e{next(numbers)}"))

    route(11)
    assert router._paused == 640
    route(320)
    assert (router._paused, len(router._remembered)) == (320, 1)
    route(321, "e")
    assert router._paused == 0
    # It pays again: more events find their routes than are added.
    for _ in range(15):
        route(1)
        route(3, "e")
    assert router._paused == 0


class NeverAsked(Not):
    """A condition that stands behind terms which do not hold."""

    def __init__(self) -> None:
        super().__init__(Exact("type", "x"))

    def matches(self, attributes: dict[str, AttributeValue]) -> bool:
        raise AssertionError("a route was asked that is no candidate")


def test_routes_of_one_type_are_indexed_by_their_rarer_term() -> None:
    index = index_of(
        *(All((Exact("type", "t"), Prefix("subject", f"/{room}/"), NeverAsked())) for room in "abcdef")
    )
    assert index.matching({"type": "t", "subject": "/z/door"}) == ()


def test_only_candidates_are_asked() -> None:
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
    assert terms in list(covers(parse(text)))


@pytest.mark.parametrize(
    "filter",
    [
        Not(Exact("type", "x")),
        All(()),
        Any((Exact("type", "x"), Not(Exact("type", "y")))),
        parse("type != 'x'"),
        parse("type = 'x' OR true"),
        parse("EXISTS source"),
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
