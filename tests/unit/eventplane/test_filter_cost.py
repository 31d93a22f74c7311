"""What a filter costs at most, and that one that costs too much is refused wherever filters come in."""

import json
from collections.abc import Callable

import pytest

from eventplane.cesql import parse
from eventplane.cesql.analysis import cost
from eventplane.contract import ContractError, compile_contract
from eventplane.contract.subscription import new_subscription
from eventplane.filter_texts import steps
from eventplane.filters import Any, Exact, Not
from eventplane.interest.announcement import AnnouncementError, new_announcement
from eventplane.limits import (
    MAX_CHEAP_STEPS,
    MAX_EVENT_BYTES,
    MAX_FILTER_NESTING,
    MAX_FILTER_STEPS,
    MAX_FILTER_TEXT_BYTES,
)
from tests.plane import shipped_contract

NOW = "2026-01-01T00:00:00.000Z"


def doubled(text: str, times: int) -> str:
    for _ in range(times):
        text = f"CONCAT({text},{text})"
    return text


LONG = f"{doubled('subject', 8)} = 'x'"


TOO_COSTLY = {
    "nested CONCAT": (LONG, "can build a text of 25,165,824 bytes"),
    "UPPER of a long text": ("UPPER(CONCAT(subject, type)) = 'x'", "can build a text of 589,824 bytes"),
    "many changes of case": (" OR ".join(["LOWER(subject) = 'x'"] * 9), "steps for one event"),
    "a long pattern": (f"subject LIKE '%{'a' * 4_000}b%'", "steps for one event"),
    "a pattern with many wildcards": (f"subject LIKE '%{'a_' * 20}b%'", "steps for one event"),
    "many comparisons with the event": (f"id IN ({', '.join(['subject'] * 200)})", "steps for one event"),
    "deep": (f"{'TRIM(' * MAX_FILTER_NESTING}id{')' * MAX_FILTER_NESTING} = 'x'", "nested 13 deep"),
}


@pytest.mark.parametrize(("expression", "said"), TOO_COSTLY.values(), ids=TOO_COSTLY)
def test_an_expression_that_costs_too_much_is_refused(expression: str, said: str) -> None:
    with pytest.raises(ContractError, match=said) as refused:
        new_subscription("family-app", "news", {"sql": expression}, NOW)
    assert refused.value.problems[0].remedy


def declared(filter: dict[str, str]) -> None:
    contract = json.loads(shipped_contract().canonical)
    next(iter(contract["routes"].values()))["filter"] = filter
    compile_contract(contract, "test")


@pytest.mark.parametrize("write", [declared, lambda filter: new_announcement("family-app", [filter])])
def test_it_can_neither_be_declared_nor_announced(write: Callable[[dict[str, str]], object]) -> None:
    with pytest.raises((ContractError, AnnouncementError), match="can build a text of 25,165,824 bytes"):
        write({"sql": LONG})


def test_parts_that_are_cheap_may_be_too_much_together() -> None:
    part = {"sql": "LOWER(subject) = 'x'"}
    new_subscription("family-app", "news", {"any": [part] * 5}, NOW)
    with pytest.raises(ContractError, match="steps for one event") as refused:
        new_subscription("family-app", "news", {"any": [part, {"not": {"any": [part] * 9}}]}, NOW)
    assert [each.path for each in refused.value.problems] == ["filter"]


def test_ordinary_filters_are_cheap() -> None:
    ordinary = "type LIKE 'org.example.alarm.%' AND severitynumber >= 17 AND (EXISTS subject OR urgent)"
    assert cost(parse(ordinary).tree).steps <= MAX_CHEAP_STEPS
    assert steps(Any((Exact("type", "a"), Not(Exact("type", "b"))))) <= MAX_CHEAP_STEPS
    for route in shipped_contract().routes:
        assert steps(route.filter) <= MAX_CHEAP_STEPS


def test_realistic_expressions_fit_the_bounds() -> None:
    words = " OR ".join(f"LOWER(subject) LIKE '%{word}%'" for word in ("bath", "kitchen", "bed", "hall"))
    expressions = [
        words,
        "CONCAT(source, '/', subject, '/', type) LIKE '/homes/%/kitchen/%'",
        "subject LIKE '%20__-__-__T%'",
        f"type IN ({', '.join(repr(f'org.example.type.v{number}') for number in range(500))})",
    ]
    for each in expressions:
        found = cost(parse(each).tree)
        assert found.steps <= MAX_FILTER_STEPS
        assert found.longest <= MAX_FILTER_TEXT_BYTES


@pytest.mark.parametrize(
    ("text", "longest"),
    [
        ("UPPER(LEFT(subject, 10))", 3 * 4 * 10),
        ("LOWER('abcd')", 6),
        ("SUBSTRING(subject, 2, 10)", 4 * 10),
        ("SUBSTRING(subject, 2)", MAX_EVENT_BYTES),
        ("LEFT(subject, hop)", MAX_EVENT_BYTES),
        ("CONCAT('ab', 1)", 3),
        ("CONCAT(ABS(hop), LENGTH(subject))", 2 * len("-2147483648")),
        ("CONCAT_WS('--', 'a', 'b', 'c')", 7),
    ],
)
def test_the_longest_text_of_an_expression_is_known(text: str, longest: int) -> None:
    assert cost(parse(f"{text} = 'x'").tree).longest == longest


def test_a_change_of_case_of_a_short_text_is_cheap() -> None:
    assert steps(parse("UPPER(LEFT(subject, 10)) = 'KITCHEN'")) <= MAX_CHEAP_STEPS
