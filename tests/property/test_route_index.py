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

NAMES = st.sampled_from(["type", "source", "subject", "a", "b", "1x"])
# Kin across types, and texts that begin and end with each other, so that terms hold and casts meet.
TEXTS = st.text("ab5", max_size=4) | st.sampled_from(
    [
        *("", "a", "ab", "aba", "ba", "b", "é", "a%", "a\U0001f600"),
        *("5", "05", "+5", "-5", "0", "1", "true", "TRUE", "false"),
    ]
)
VALUES = TEXTS | st.sampled_from([5, -5, 0, 1, 2**31 - 1]) | st.booleans()
# The envelope gives the known attributes one type each.
EVENTS = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("type", "source", "subject"), TEXTS) | dict.fromkeys(("a", "b", "1x"), VALUES)
)

PLAIN = st.sampled_from([Exact, Prefix, Suffix]).flatmap(lambda kind: st.builds(kind, NAMES, TEXTS))


def literal(value: AttributeValue) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "false"
    return str(value) if isinstance(value, int) else f"'{value}'"


# Identifiers are case-insensitive in CESQL.
IDENTIFIERS = NAMES | NAMES.map(str.upper)
LITERALS = VALUES.map(literal)
PATTERNS = st.text("ab5%_", max_size=5) | st.sampled_from([r"a\%", r"a\%%", r"%\_", "%", "", "%a_"])
OPERANDS = LITERALS | IDENTIFIERS | IDENTIFIERS.map(lambda name: f"UPPER({name})")
CONDITIONS = st.one_of(
    st.builds("{} {} {}".format, IDENTIFIERS, st.sampled_from(["=", "!=", "<", ">="]), OPERANDS),
    st.builds("{} = {}".format, LITERALS, IDENTIFIERS),
    st.builds("{} {} '{}'".format, IDENTIFIERS, st.sampled_from(["LIKE", "NOT LIKE"]), PATTERNS),
    st.builds(
        "{} {} ({})".format,
        IDENTIFIERS,
        st.sampled_from(["IN", "NOT IN"]),
        st.lists(OPERANDS, min_size=1, max_size=3).map(", ".join),
    ),
    st.builds("EXISTS {}".format, IDENTIFIERS),
    IDENTIFIERS,
    LITERALS,
)
EXPRESSIONS = st.recursive(
    CONDITIONS,
    lambda inner: (
        st.builds("({} {} {})".format, inner, st.sampled_from(["AND", "and", "OR", "XOR"]), inner)
        | st.builds("NOT ({})".format, inner)
    ),
    max_leaves=5,
)
SQL = EXPRESSIONS.map(parse)
FILTERS: st.SearchStrategy[Filter] = st.recursive(
    PLAIN | SQL,
    lambda inner: (
        st.builds(All, st.lists(inner, max_size=3).map(tuple))
        | st.builds(Any, st.lists(inner, max_size=3).map(tuple))
        | st.builds(Not, inner)
    ),
    max_leaves=6,
)


CONTRACT = workload.contract(1)


@pytest.mark.source("P1")
@settings(max_examples=examples(500))
@given(
    st.lists(FILTERS, max_size=12),
    st.lists(EVENTS, min_size=1, max_size=6),
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
@given(FILTERS, EVENTS)
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
