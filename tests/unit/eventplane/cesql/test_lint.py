"""What the lint warns about, and what it leaves alone."""

import pytest

from eventplane.cesql import lint, missing_functions, parse


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("a = 1 AND b = 2 OR c = 3", 16, "AND and OR are mixed"),
        ("a OR (b AND c XOR d)", 14, "AND and XOR are mixed"),
        ("NOT a = b", 0, "NOT binds to the next word only"),
        ("a AND NOT b LIKE 'x'", 6, "NOT binds to the next word only"),
        ("NOT a IN ('x')", 0, "NOT binds to the next word only"),
        ("time < '2026-01-01'", 7, "cannot be cast"),
        ("a + 'x' = 1", 4, "cannot be cast"),
        ("a = 1 OR LEFT(b, 'x') = 'b'", 17, "cannot be cast"),
        ("a OR FOO(b)", 5, "there is no function FOO of 1"),
        ("1 = 1", 0, "every event passes"),
        ("EXISTS id", 0, "every event passes"),
        ("TRUE OR a = 1", 0, "every event passes"),
        ("EXISTS id XOR FALSE", 0, "every event passes"),
        ("EXISTS id XOR EXISTS source", 0, "no event passes"),
        ("EXISTS id XOR 1 / 0 = a", 0, "no event passes"),
        ("'x' = 1 AND a", 0, "cannot be cast"),
        ("a = 1 AND FALSE", 0, "no event passes"),
        ("5 / 0 = a", 0, "no event passes"),
        ("NOT 10", 0, "no event passes"),
        ("a OR NOT 10", 9, "10 cannot be cast"),
        ("a AND b OR c AND d OR e", 8, "AND and OR are mixed"),
        ("(FOO(a) = 1) AND b", 1, "no event passes"),
        ("UPPER(type)", 0, "a value of type String"),
        ("a + 1", 0, "a value of type Integer"),
        ("'x'", 0, "a value of type String"),
        ("a = 1 AND 1 < 2", 10, "this part is always true"),
        ("a = 1 OR NOT EXISTS source", 9, "this part is always false"),
    ],
)
def test_each_pitfall_is_named_at_its_place(text: str, position: int, message: str) -> None:
    found = [warning for warning in lint(parse(text)) if message in warning.message]
    assert [warning.position for warning in found] == [position]
    assert found[0].remedy
    assert found[0].excerpt.splitlines()[-1].index("^") == position


@pytest.mark.parametrize(
    "text",
    [
        "type = 'org.example.alarm.v1'",
        "(a = 1 AND b = 2) OR c = 3",
        "a = 1 AND b = 2 AND c = 3",
        "NOT (a = b)",
        "(NOT a) = b",
        "NOT EXISTS a",
        "a NOT LIKE 'x' = b",
        "a",
        "type = UPPER('org') OR type LIKE '%.v2'",
        "type IN ('com.other', 'org.example.alarm.v1') AND hop < ttl",
        "BOOL(a)",
        "NOT hop",
        "a XOR (b AND (c OR d))",
    ],
)
def test_a_plain_expression_has_no_warning(text: str) -> None:
    assert lint(parse(text)) == []


def test_warnings_come_in_the_order_of_the_text() -> None:
    assert [each.position for each in lint(parse("NOT a = b AND c OR d"))] == [0, 16]


def test_a_function_is_missing_by_its_name_and_its_arity() -> None:
    (only,) = missing_functions(parse("NOT a = b AND LENGTH(a, b) = 1"))
    assert "LENGTH of 2" in only.message
