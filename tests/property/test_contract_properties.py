"""What the checks call impossible never happens, and an explanation is the router's own answer."""

from hypothesis import given
from hypothesis import strategies as st

from eventplane.cesql import parse
from eventplane.contract.possibilities import possible
from eventplane.explain import explain_filter
from eventplane.filters import All, Any, Exact, Filter, Not, Prefix, Sql, Suffix

NAMES = st.sampled_from(["type", "subject", "level"])
VALUES = st.sampled_from(["a", "ab", "b", "true", "1"])
EXPRESSIONS = st.sampled_from(
    [
        "type = 'a'",
        "NOT (type LIKE 'a%')",
        "EXISTS level AND level > 0",
        "subject = 'b' OR type = 'ab'",
        "level XOR subject",
        "1 / 0 = 1 OR type = 'a'",
        "level",
        "TRUE",
    ]
)
LEAVES = st.one_of(
    st.builds(Exact, NAMES, VALUES),
    st.builds(Prefix, NAMES, VALUES),
    st.builds(Suffix, NAMES, VALUES),
    st.builds(lambda text: Sql(parse(text)), EXPRESSIONS),
)


def _joined(filters: st.SearchStrategy[Filter]) -> st.SearchStrategy[Filter]:
    lists = st.lists(filters, min_size=1, max_size=3).map(tuple)
    return st.one_of(st.builds(All, lists), st.builds(Any, lists), st.builds(Not, filters))


FILTERS: st.SearchStrategy[Filter] = st.recursive(LEAVES, _joined, max_leaves=6)
EVENTS = st.fixed_dictionaries(
    {"type": VALUES}, optional={"subject": VALUES, "level": VALUES | st.booleans()}
)


@given(FILTERS, EVENTS, st.sets(NAMES))
def test_an_answer_is_among_the_possible_ones(
    filter: Filter, event: dict[str, str | bool], names: set[str]
) -> None:
    known = {name: value for name, value in event.items() if name in names}
    assert filter.matches(event) in possible(filter, known)


@given(FILTERS, EVENTS)
def test_an_explanation_agrees_with_itself(filter: Filter, event: dict[str, str | bool]) -> None:
    waiting = [explain_filter(filter, event)]
    assert waiting[0].matched is filter.matches(event)
    while waiting:
        term = waiting.pop()
        answers = [each.matched for each in term.terms]
        if term.text in ("all of", "any of", "not"):
            assert term.matched is {"all of": all, "any of": any, "not": lambda one: not one[0]}[term.text](
                answers
            )
        waiting += term.terms
