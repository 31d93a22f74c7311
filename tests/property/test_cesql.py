"""CESQL for any text, any tree and any event."""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eventplane.attributes import AttributeValue
from eventplane.cesql import BUILTINS, CesqlGenericError, CesqlParseError, lint, mixed_logic, parse, write
from eventplane.cesql.analysis import cost, outcomes
from eventplane.cesql.compilation import compile_filter
from eventplane.cesql.expression import evaluate
from eventplane.cesql.functions import Function, Functions
from eventplane.cesql.operations import matcher
from eventplane.cesql.parser import MAX_EXPRESSION_LENGTH, quote
from eventplane.cesql.tree import (
    Arithmetic,
    Attribute,
    Call,
    Comparison,
    ComparisonOperator,
    Exists,
    In,
    Like,
    Literal,
    Logic,
    LogicalNot,
    Negate,
    Node,
)
from eventplane.cesql.tree import names as names_in
from tests.examples import examples

Event = dict[str, AttributeValue]


def writable(text: str) -> bool:
    try:
        quote(text)
    except CesqlGenericError:
        return False
    return True


NAMES = st.sampled_from(["a", "b", "c", "type", "id", "1x"])
# A few values that are each other in another type, so that casts meet and comparisons hold.
KIN: list[AttributeValue] = ["5", "05", 5, -5, "-5", 0, "0", 1, "1", "true", "TRUE", True, False, "false"]
EDGES: list[AttributeValue] = ["", "abc", "a.b", " 5", "2147483648", 2**31 - 1, -(2**31), "-2147483648"]
TEXTS = st.one_of(
    st.sampled_from([each for each in KIN + EDGES if isinstance(each, str)]),
    st.text("ab%_\\'\"é5", max_size=6),
    st.text(max_size=6),
)

INTEGERS = st.integers(-(2**31), 2**31 - 1)
VALUES = st.one_of(st.sampled_from(KIN), st.sampled_from(KIN), st.sampled_from(EDGES), TEXTS, INTEGERS)
EVENTS = st.dictionaries(NAMES, VALUES)
LITERALS = st.builds(Literal, VALUES.filter(lambda value: writable(str(value))))
FUNCTIONS = st.sampled_from(
    ["LENGTH", "CONCAT", "CONCAT_WS", "UPPER", "TRIM", "LEFT", "SUBSTRING", "ABS", "INT", "BOOL", "NOPE"]
)
WATCHED = [
    function
    for name, arities in {
        **dict.fromkeys(("LENGTH", "LOWER", "UPPER", "TRIM", "ABS", "INT", "BOOL", "STRING", "CONCAT"), (1,)),
        "CONCAT_WS": (1,),
        "LEFT": (2,),
        "RIGHT": (2,),
        "SUBSTRING": (2, 3),
    }.items()
    for arity in arities
    if (function := BUILTINS.resolve(name, arity))
]
LEAVES = st.one_of(LITERALS, st.builds(Attribute, NAMES), st.builds(Exists, NAMES))


def call(name: str, arguments: tuple[Node, ...]) -> Node:
    return Call(name, arguments, BUILTINS.resolve(name, len(arguments)))


def larger(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    lists = st.lists(inner, min_size=1, max_size=3).map(tuple)
    return st.one_of(
        st.builds(LogicalNot, inner),
        st.builds(Negate, inner),
        st.builds(Arithmetic, st.sampled_from(["*", "/", "%", "+", "-"]), inner, inner),
        st.builds(Comparison, st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), inner, inner),
        st.builds(Logic, st.sampled_from(["AND", "OR", "XOR"]), inner, inner),
        st.builds(Like, inner, TEXTS.filter(writable)),
        st.builds(In, inner, lists),
        st.builds(In, inner, st.lists(LITERALS, min_size=1, max_size=3).map(tuple)),
        st.builds(call, FUNCTIONS, st.lists(inner, max_size=3).map(tuple)),
    )


CONDITIONS = larger(LEAVES)
TREES = st.one_of(CONDITIONS, larger(CONDITIONS | LEAVES), st.recursive(LEAVES, larger, max_leaves=12))
WORDS = st.sampled_from(
    [
        *"(),=<>+-*/%'\\é_a1",
        *("!=", "AND", "or", "not", "LIKE", "in", "EXISTS", "true", "'x'", '"y"', "f(", "-2"),
    ]
)
SOUP = st.lists(WORDS, max_size=30).map(" ".join)


def long(part: str, end: str, times: int) -> str:
    return (f"{part} " * times)[: MAX_EXPRESSION_LENGTH - len(end)] + end


LONG = st.builds(long, SOUP, SOUP, st.integers(1, 2000))


@settings(max_examples=examples(500))
@given(st.text(max_size=60) | SOUP | LONG)
@example(long("NOT (", "", 2000))
@example(long("a OR", "b", 2000))
@example(long("'\\", "", 2000))
def test_a_text_parses_or_is_refused_with_its_place(text: str) -> None:
    try:
        expression = parse(text)
    except CesqlParseError as error:
        assert error.position is not None
        assert 0 <= error.position <= len(text)
        assert error.excerpt.endswith("^")
    else:
        lint(expression)


def assert_both_forms_agree(trees: Sequence[Node], events: Sequence[Event]) -> None:
    for tree in trees:
        matches = compile_filter(tree)
        for event in events:
            assert matches(event) is evaluate(tree, event).passes


@settings(max_examples=examples(1000))
@given(TREES, st.lists(EVENTS, min_size=1, max_size=4))
def test_the_compiled_filter_agrees_with_the_walk(tree: Node, events: list[Event]) -> None:
    assert_both_forms_agree([tree], events)


@pytest.mark.parametrize("operator", ["=", "!=", "<", "<=", ">", ">="])
def test_the_compiled_comparison_agrees_for_every_pair(operator: ComparisonOperator) -> None:
    a, b = Attribute("a"), Attribute("b")
    of_two: list[Node] = [Comparison(operator, a, b), In(a, (b,)), Logic("XOR", a, b)]
    assert_both_forms_agree(of_two, [{"a": one, "b": two} for one, two in product(KIN + EDGES, repeat=2)])
    for literal in map(Literal, KIN + EDGES):
        of_one: list[Node] = [Comparison(operator, a, literal), Comparison(operator, literal, a)]
        assert_both_forms_agree([*of_one, In(a, (literal,))], [{"a": value} for value in KIN + EDGES])


@settings(max_examples=examples(500))
@given(TREES, EVENTS)
def test_no_text_gets_longer_than_the_cost_of_its_expression_says(tree: Node, attributes: Event) -> None:
    made: list[int] = []

    def watched(function: Function) -> Function:
        def run(*arguments: AttributeValue) -> AttributeValue:
            value = function.run(*arguments)
            made.append(len(value.encode("utf-8", "surrogatepass")) if isinstance(value, str) else 0)
            return value

        return replace(function, run=run)

    expression = parse(write(tree), Functions(watched(each) for each in WATCHED))
    expression.evaluate(attributes)
    expression.matches(attributes)
    # As if no event were larger than these.
    sizes = [len(str(each).encode("utf-8", "surrogatepass")) for each in attributes.values()]
    with patch("eventplane.cesql.analysis.MAX_EVENT_BYTES", max([*sizes, len("false")])):
        assert max(made, default=0) <= cost(tree).longest


def test_a_change_of_case_makes_no_more_bytes_than_its_cost_says() -> None:
    for start in range(0, 0x110000, 0x100):
        block = "".join(map(chr, range(start, start + 0x100)))
        if block.lower() == block == block.upper():
            continue  # none of these has a case
        for each in block:
            size = len(each.encode())
            assert len(each.lower().encode()) <= 3 * size // 2
            assert len(each.upper().encode()) <= 3 * size


@settings(max_examples=examples(500))
@given(TREES)
def test_a_written_tree_parses_to_the_same_tree(tree: Node) -> None:
    text = write(tree)
    again = parse(text).tree
    assert again == tree
    assert write(again) == text


@settings(max_examples=examples(500))
@given(TREES, EVENTS, st.sets(NAMES))
def test_every_outcome_was_foreseen(tree: Node, event: Event, names: set[str]) -> None:
    known = {name: value for name, value in event.items() if name in names}
    foreseen = outcomes(tree, known)
    result = evaluate(tree, {"id": "1", "type": "t", **event})
    if result.passes:
        assert "true" in foreseen
    if result.errors:
        assert "error" in foreseen
    if result.value is False and not result.errors:
        assert "false" in foreseen
    if names_in(tree) <= known.keys():
        assert len(foreseen) == 1


@given(st.lists(st.sampled_from(["AND", "OR", "XOR"]), min_size=1, max_size=12))
def test_the_first_form_of_mixed_logic_is_what_it_means(operators: list[str]) -> None:
    text = "a0" + "".join(f" {operator} a{at}" for at, operator in enumerate(operators, 1))
    found = mixed_logic(parse(text))
    assert bool(found) is (len(set(operators)) > 1)
    for each in found:
        forms = re.findall(r"(?:^write| or) (.+?) \((?:from|AND first)", each.remedy)
        assert parse(forms[0]).tree == parse(text).tree
        for form in forms:
            assert mixed_logic(parse(form)) == []
            assert re.findall(r"\w+", form) == re.findall(r"\w+", text)


def plain_like(text: str, pattern: str) -> bool:
    """LIKE by its definition: one character of the pattern after the other."""

    @cache
    def fits(at: int, of: int) -> bool:
        if of == len(pattern):
            return at == len(text)
        if pattern[of] == "%":
            return fits(at, of + 1) or (at < len(text) and fits(at + 1, of))
        escaped = pattern[of] == "\\" and pattern[of + 1 : of + 2] in ("%", "_")
        wanted = pattern[of + 1] if escaped else pattern[of]
        anything = wanted == "_" and not escaped
        return at < len(text) and (anything or text[at] == wanted) and fits(at + 1, of + 1 + escaped)

    return fits(0, 0)


@settings(max_examples=examples(1000))
@given(st.text("ab%_\\\né", max_size=12), st.text("ab%_\\\n", max_size=8))
# Each form that is compiled in a way of its own.
@example("abc", "")
@example("abc", "abc")
@example("abc", "ab%")
@example("abc", "%bc")
@example("abc", "%b%")
@example("abc", "_%c")
def test_like_is_as_defined(text: str, pattern: str) -> None:
    expected = plain_like(text, pattern)
    assert matcher(pattern)(text) is expected
    assert compile_filter(Like(Attribute("a"), pattern))({"a": text}) is expected
