"""The search for an event agrees with trying all events of a finite world, and what it finds is one."""

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from contract.filter_search import search
from eventplane.attributes import AttributeValue
from eventplane.contract.possibilities import possible
from eventplane.filters import Filter
from tests.examples import examples
from tests.property.strategies import filters

TEXTS = ("", "a", "ab", "b", "5", "05", "true", "1")
WORLD: dict[str, tuple[AttributeValue | None, ...]] = {
    "subject": (None, "a", "ab", "ba", "bab", "c", "5"),
    "room": (None, *TEXTS, "c", "-1", 0, 1, 4, 5, 6, 51, -7, True, False),
    "severitynumber": (None, 1, 5, 17),
}
"""Events of which there must be none with an answer that the search rules out."""

VALUES: st.SearchStrategy[AttributeValue] = st.sampled_from([*TEXTS, 0, 5, True, False])
FILTERS = filters(st.sampled_from([*WORLD]), VALUES, leaves=4)


def _events() -> list[dict[str, AttributeValue]]:
    return [
        {name: value for name, value in zip(WORLD, values, strict=True) if value is not None}
        for values in product(*WORLD.values())
    ]


EVENTS = _events()


@settings(max_examples=examples(300))
@given(FILTERS)
def test_proven_holds_everywhere(filter: Filter) -> None:
    found = search([filter], lambda known: possible(filter, known), lambda each: not filter.matches(each), {})
    if found.event is not None:
        assert not filter.matches(found.event)
    elif not found.problem:
        assert all(map(filter.matches, EVENTS))
