"""Filter dialects of the Subscriptions API."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from eventplane.cesql import parse
from eventplane.contract.canonical import Problem
from eventplane.contract.filter_reader import MAX_FILTER_DEPTH, read_filter
from eventplane.filter_texts import to_document
from eventplane.filters import All, Any, Exact, Filter, Not, Prefix, Suffix

ATTRIBUTES = {"type": "org.example.alarm.v1", "subject": "/kitchen", "level": 3, "urgent": True}


def filter_of(document: object) -> Filter:
    problems: list[Problem] = []
    result = read_filter(document, "filter", problems)
    assert problems == []
    return result


@pytest.mark.source("P1", "P-W7")
@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"exact": {"type": "org.example.alarm.v1"}}, True),
        ({"exact": {"type": "org.example.alarm"}}, False),
        ({"exact": {"level": "3"}}, True),
        ({"exact": {"urgent": "true"}}, True),
        ({"exact": {"missing": "x"}}, False),
        ({"prefix": {"type": "org.example."}}, True),
        ({"prefix": {"missing": "x"}}, False),
        ({"suffix": {"type": ".v1"}}, True),
        ({"suffix": {"subject": "/bath"}}, False),
        ({"exact": {"subject": "/kitchen", "level": "3"}}, True),
        ({"exact": {"subject": "/kitchen", "level": "4"}}, False),
        ({"all": [{"suffix": {"type": ".v1"}}, {"exact": {"subject": "/bath"}}]}, False),
        ({"any": [{"suffix": {"type": ".v2"}}, {"exact": {"subject": "/kitchen"}}]}, True),
        ({"not": {"exact": {"missing": "x"}}}, True),
        ({"sql": "subject = '/kitchen' AND level >= 3"}, True),
        ({"sql": "missing = 'x' OR urgent"}, False),
        ({"not": {"sql": "missing = 'x'"}}, True),
        ({"not": {"exact": {"subject": "/kitchen"}}}, False),
    ],
)
def test_matching(document: object, expected: bool) -> None:
    assert filter_of(document).matches(ATTRIBUTES) is expected


def test_a_filter_is_written_as_it_is_read() -> None:
    tree = Any(
        (All((Exact("type", "a"), Not(Suffix("subject", "/b")))), Prefix("source", "/c"), parse("a = 1"))
    )
    assert filter_of(to_document(tree)) == tree


@pytest.mark.parametrize(
    ("document", "path"),
    [
        (None, "filter"),
        ({}, "filter"),
        ({"exact": {"type": "a"}, "prefix": {"type": "b"}}, "filter"),
        ({"sequel": "type = 'a'"}, "filter.sequel"),
        ({"sql": {"type": "a"}}, "filter.sql"),
        ({"sql": ""}, "filter.sql"),
        ({"sql": "type = "}, "filter.sql"),
        ({"sql": "FOO(type)"}, "filter.sql"),
        ({"exact": {}}, "filter.exact"),
        ({"exact": {"Type": "a"}}, "filter.exact.Type"),
        ({"exact": {"type": ""}}, "filter.exact.type"),
        ({"exact": {"type": 1}}, "filter.exact.type"),
        ({"all": []}, "filter.all"),
        ({"any": [{"exact": {"type": "a"}}, 7]}, "filter.any[1]"),
        ({"not": [{"exact": {"type": "a"}}]}, "filter.not"),
    ],
)
def test_a_wrong_filter_is_named_by_its_path(document: object, path: str) -> None:
    problems: list[Problem] = []
    read_filter(document, "filter", problems)
    assert [problem.path for problem in problems] == [path]


ONE = {"exact": {"type": "a"}}
TWO = {"exact": {"type": "a", "source": "/b"}}


def nested(document: object, levels: int) -> object:
    for _ in range(levels):
        document = {"not": document}
    return document


@pytest.mark.parametrize(("innermost", "levels"), [(ONE, MAX_FILTER_DEPTH), (TWO, MAX_FILTER_DEPTH - 1)])
def test_nesting_is_bounded(innermost: object, levels: int) -> None:
    filter_of(nested(innermost, levels))
    problems: list[Problem] = []
    read_filter(nested(innermost, levels + 1), "filter", problems)
    (problem,) = problems
    assert "nested deeper" in problem.message


@given(
    st.recursive(
        st.sampled_from([ONE, TWO, {"sql": "a = 1"}]),
        lambda inner: st.dictionaries(
            st.sampled_from(["all", "any"]), st.lists(inner, min_size=1, max_size=2), min_size=1, max_size=1
        ),
        max_leaves=4,
    ),
    st.integers(MAX_FILTER_DEPTH - 3, MAX_FILTER_DEPTH),
)
def test_an_accepted_filter_is_accepted_as_it_is_written(document: object, levels: int) -> None:
    problems: list[Problem] = []
    accepted = read_filter(nested(document, levels), "filter", problems)
    assume(not problems)
    assert filter_of(to_document(accepted)) == accepted


def test_a_fault_in_an_expression_is_shown_with_a_caret() -> None:
    problems: list[Problem] = []
    read_filter({"sql": "type = 'a' AND (subject = 'b'"}, "routes.alarms.filter", problems)
    (problem,) = problems
    assert str(problem).splitlines() == [
        "routes.alarms.filter.sql: a parenthesis is not closed; add )",
        "      type = 'a' AND (subject = 'b'",
        "                                   ^",
    ]
