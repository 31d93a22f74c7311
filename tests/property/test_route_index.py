"""The index, and the router that remembers its answers, find the routes that match one by one."""

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eventplane.attributes import AttributeValue
from eventplane.cesql import parse
from eventplane.contract import Place, Route
from eventplane.envelope import Envelope
from eventplane.filters import All, Any, Exact, Filter, Not, Prefix, Suffix
from eventplane.route_index import PrefixTable, RouteIndex, covers, residual
from eventplane.router import Router
from lab.benchmarks import workload
from tests.examples import examples
from tests.property.strategies import ATTRIBUTES, FILTERS

CONTRACT = workload.contract(1)


@pytest.mark.source("P1")
@settings(max_examples=examples(500))
@given(
    st.lists(FILTERS, max_size=12),
    st.lists(ATTRIBUTES, min_size=1, max_size=6),
    st.integers(1, 4),
    st.sampled_from([1_000, 200_000, 4_000_000]),
)
@example(
    [parse("a IN ('05')"), parse("'TRUE' = a"), parse("a = '5'")],
    [{"a": 5}, {"a": True}],
    4,
    4_000_000,
)
@example([All(()), Any(()), Not(Any(()))], [{}], 4, 4_000_000)
@example([Any((Exact("a", "x"), Prefix("a", "x"), Suffix("a", "x")))], [{"a": "x"}], 4, 4_000_000)
@example([parse("a = true"), Exact("a", "1")], [{"a": 1}, {"a": True}, {"a": "1"}, {}], 4, 4_000_000)
def test_index_and_router_agree_with_the_plain_loop(
    filters: list[Filter], events: list[dict[str, AttributeValue]], entries: int, size: int
) -> None:
    routes = [Route(f"r{at:02}", each, "desk.inbox", Place.CLOUD) for at, each in enumerate(filters)]
    index = RouteIndex(routes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("eventplane.router.MAX_REMEMBERED_ROUTINGS", entries)
        patch.setattr("eventplane.router.MAX_REMEMBERED_BYTES", size)
        router = Router(replace(CONTRACT, routes=tuple(routes)), Place.CLOUD)
        for attributes in [*events, *events]:
            expected = tuple(route for route in routes if route.filter.matches(attributes))
            assert index.matching(attributes) == expected
            assert router.route(Envelope(attributes, "{}")) == expected


@settings(max_examples=examples(500))
@given(FILTERS, ATTRIBUTES)
def test_covers_hold_where_filters_match(filter: Filter, attributes: dict[str, AttributeValue]) -> None:
    matches = filter.matches(attributes)
    for cover in covers(filter):
        held = any(term.matches(attributes) for term in cover)
        rest = residual(filter, cover)
        assert held or not matches
        assert not held or matches is (rest is None or rest.matches(attributes))


@given(st.sets(st.text("ab", max_size=6)), st.text("abc", max_size=8))
def test_a_prefix_table_finds_every_prefix(prefixes: set[str], text: str) -> None:
    places = sorted(prefixes)
    found: list[int] = []
    PrefixTable({each: [at] for at, each in enumerate(places)}).find(text, found)
    assert sorted(found) == [at for at, each in enumerate(places) if text.startswith(each)]
