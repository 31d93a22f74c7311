"""What the checks call impossible never happens, loops are found, an explanation is the router's answer."""

from hypothesis import given
from hypothesis import strategies as st

from contract.checks import check
from contract.explain import explain_filter
from eventplane.cesql import parse
from eventplane.contract import compile_contract, load_compiled
from eventplane.contract.possibilities import possible
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
        condition = waiting.pop()
        answers = [each.matched for each in condition.parts]
        if condition.text in ("all of", "any of", "not"):
            assert condition.matched is {"all of": all, "any of": any, "not": lambda one: not one[0]}[
                condition.text
            ](answers)
        waiting += condition.parts


SERVICES = "pqrs"
SENT = st.dictionaries(st.sampled_from(SERVICES), st.sets(st.sampled_from("abc")))
READ = st.sets(st.tuples(st.sampled_from("abc"), st.sampled_from(SERVICES)), min_size=1)


@given(SENT, READ)
def test_a_service_is_named_in_a_loop_if_and_only_if_its_events_can_come_back(
    sent: dict[str, set[str]], read: set[tuple[str, str]]
) -> None:
    contract = compile_contract(
        {
            "format": 2,
            "name": "small",
            "participants": {
                "home": {"kind": "device", "description": "d"},
                **{
                    each: {
                        "kind": "cloud_service",
                        "description": "d",
                        "sends": sorted(sent[each]) if each in sent else None,
                    }
                    for each in SERVICES
                },
            },
            "event_types": {each: {"description": "d"} for each in "abc"},
            "routes": {
                f"{type}-to-{reader}": {"filter": {"exact": {"type": type}}, "to": f"{reader}.inbox"}
                for type, reader in read
            },
        },
        "small",
    )
    assert load_compiled(contract.canonical) == contract
    reached = {each: {reader for type, reader in read if type in sent.get(each, ())} for each in SERVICES}
    for _ in SERVICES:
        reached = {each: known.union(*(reached[other] for other in known)) for each, known in reached.items()}
    loops = [each.message for each in check(contract) if each.message.startswith("a loop")]
    named = {each for each in SERVICES if any(f"{each} sends" in message for message in loops)}
    assert named == {each for each in SERVICES if each in reached[each]}
