"""The search for an event agrees with trying all events of a finite world, and what it finds is one."""

from itertools import product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from contract.filter_search import search
from eventplane.attributes import AttributeValue
from eventplane.contract.possibilities import possible
from eventplane.filters import Filter, from_document
from tests.examples import examples

TEXTS = ("", "a", "ab", "b", "5", "05", "true", "1")
WORLD: dict[str, tuple[AttributeValue | None, ...]] = {
    "subject": (None, "a", "ab", "ba", "bab", "c", "5"),
    "room": (None, *TEXTS, "c", "-1", 0, 1, 4, 5, 6, 51, -7, True, False),
    "severitynumber": (None, 1, 5, 17),
}
"""Events of which there must be none with an answer that the search rules out."""

NAMES = st.sampled_from([*WORLD])
TEXT = st.sampled_from(TEXTS)
LITERALS = TEXT.map("'{}'".format) | st.sampled_from(["0", "5", "TRUE", "FALSE"])


def _expressions() -> st.SearchStrategy[str]:
    patterns = st.lists(st.sampled_from(["a", "b", "%", "_", "5"]), max_size=4).map("".join)
    leaves = st.one_of(
        st.builds("{} {} {}".format, NAMES, st.sampled_from(["=", "!=", "<", ">="]), LITERALS),
        st.builds("{} {} {}".format, LITERALS, st.sampled_from(["=", "!=", "<"]), NAMES),
        st.builds("{} {}LIKE '{}'".format, NAMES, st.sampled_from(["", "NOT "]), patterns),
        st.builds("{} IN ({})".format, NAMES, st.lists(LITERALS, min_size=1, max_size=3).map(", ".join)),
        st.builds("EXISTS {}".format, NAMES),
        NAMES,
        st.builds("LENGTH({}) > 1".format, NAMES),
        st.builds("{} = {}".format, NAMES, NAMES),
    )
    return st.recursive(
        leaves,
        lambda inner: (
            st.builds("({} {} {})".format, inner, st.sampled_from(["AND", "OR", "XOR"]), inner)
            | st.builds("(NOT ({}))".format, inner)
        ),
        max_leaves=3,
    )


def _documents() -> st.SearchStrategy[dict[str, Any]]:
    comparisons = st.builds(
        lambda dialect, name, text: {dialect: {name: text}},
        st.sampled_from(["exact", "prefix", "suffix"]),
        NAMES,
        TEXT,
    )
    return st.recursive(
        comparisons | _expressions().map(lambda text: {"sql": text}),
        lambda inner: (
            st.builds(
                lambda name, parts: {name: parts},
                st.sampled_from(["all", "any"]),
                st.lists(inner, min_size=1, max_size=3),
            )
            | inner.map(lambda each: {"not": each})
        ),
        max_leaves=4,
    )


def _events() -> list[dict[str, AttributeValue]]:
    return [
        {name: value for name, value in zip(WORLD, values, strict=True) if value is not None}
        for values in product(*WORLD.values())
    ]


EVENTS = _events()


@settings(max_examples=examples(300))
@given(_documents())
def test_proven_holds_everywhere(document: dict[str, Any]) -> None:
    filter: Filter = from_document(document)
    found = search([filter], lambda known: possible(filter, known), lambda each: not filter.matches(each), {})
    if found.event is not None:
        assert not filter.matches(found.event)
    elif not found.problem:
        assert all(map(filter.matches, EVENTS))
