"""What is an expression, how its parts bind, how a tree is written, and what a refusal says."""

import pytest

from eventplane.cesql import CesqlGenericError, CesqlParseError, parse, write
from eventplane.cesql.parser import MAX_EXPRESSION_DEPTH, MAX_EXPRESSION_LENGTH, quote
from eventplane.cesql.tree import Attribute, Call, Comparison, In, Like, Literal, Logic, LogicalNot, Negate

A, B, C, D = (Attribute(name) for name in "abcd")


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a AND b OR c XOR d", Logic("XOR", Logic("OR", Logic("AND", A, B), C), D)),
        ("a OR b AND c", Logic("AND", Logic("OR", A, B), C)),
        ("a OR (b AND c)", Logic("OR", A, Logic("AND", B, C))),
        ("a = b = c", Comparison("=", Comparison("=", A, B), C)),
        ("a <> b", Comparison("!=", A, B)),
        ("NOT a = b", Comparison("=", LogicalNot(A), B)),
        ("NOT NOT a", LogicalNot(LogicalNot(A))),
        ("not a like 'x'", Like(LogicalNot(A), "x")),
        ("a NOT LIKE 'x'", LogicalNot(Like(A, "x"))),
        ("a not in (b, c)", LogicalNot(In(A, (B, C)))),
        ("a IN (b) LIKE 'x' IN (c)", In(Like(In(A, (B,)), "x"), (C,))),
        ("a = b IN (c)", Comparison("=", A, In(B, (C,)))),
        ("--10", Negate(Literal(-10))),
        ("- 10", Negate(Literal(10))),
        ("+7", Literal(7)),
        ("007", Literal(7)),
        ("-2147483648", Literal(-2147483648)),
        ("TyPe", Attribute("type")),
        ("1abc", Attribute("1abc")),
        ("my_function(a, 'b')", Call("MY_FUNCTION", (A, Literal("b")))),
        ("abc()", Call("ABC", ())),
        (r"'a\'b\c'", Literal(r"a'b\c")),
        (r'"a\"b\'c"', Literal(r"a\"b\'c".replace(r"\"", '"'))),
        ("'line\nbreak'", Literal("line\nbreak")),
        ("\t'ü' \r\n", Literal("ü")),
    ],
)
def test_trees(text: str, tree: object) -> None:
    assert parse(text).tree == tree


def test_the_type_of_a_literal_is_part_of_it() -> None:
    assert Literal(1) != Literal(value=True)
    assert Literal(0) != Literal(value=False)


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("", 0, "ends where a value is needed"),
        ("a =", 3, "ends where a value is needed"),
        ("a = )", 4, "a value is needed before ')'"),
        ("(a", 2, "not closed"),
        ("f(a", 3, "not closed"),
        ("a)", 1, "closes nothing"),
        ("a b", 2, "operator is missing"),
        ("a NOT b", 2, "operator is missing"),
        ("a-1", 1, "a sign that touches a number"),
        ("1 -1", 2, "a sign that touches a number"),
        ("a LIKE b", 7, "needs a pattern in quotes"),
        ("a IN b", 5, "needs a list"),
        ("a IN ()", 6, "a value is needed before"),
        ("EXISTS 'a'", 7, "name of an attribute is needed"),
        ("EXISTS or", 7, "name of an attribute is needed"),
        ("like", 0, "name of an attribute is needed"),
        ("my_name", 0, "is not the name of an attribute"),
        ("f1(a)", 0, "is not the name of a function"),
        ("'abc", 0, "not closed"),
        (r"'abc\'", 0, "not closed"),
        ("'it''s'", 4, "operator is missing"),
        ("a = é", 4, "has no meaning"),
        ("a == b", 3, "a value is needed before '='"),
        ("a\u00a0= b", 1, "has no meaning"),
        ("2147483648", 0, "32 bits"),
        ("a = " + "9" * 6000, 4, "32 bits"),
    ],
)
def test_refusals(text: str, position: int, reason: str) -> None:
    with pytest.raises(CesqlParseError) as caught:
        parse(text)
    assert caught.value.position == position
    assert reason in caught.value.reason
    assert caught.value.remedy
    assert caught.value.kind == "parse"


def test_a_refusal_shows_the_place() -> None:
    with pytest.raises(CesqlParseError) as caught:
        parse("type = 'a' AND\n  subject LIKE 5")
    assert caught.value.excerpt == "  subject LIKE 5\n               ^"
    assert str(caught.value).endswith(caught.value.excerpt)


def test_an_excerpt_of_a_long_line_keeps_the_place() -> None:
    with pytest.raises(CesqlParseError) as caught:
        parse("a = 1 OR " * 90 + "b ? 2 " + "x" * 500)
    line, marker = caught.value.excerpt.split("\n")
    assert len(line) <= 100
    assert line[marker.index("^")] == "?"


@pytest.mark.parametrize(
    "text",
    [
        "(" * (MAX_EXPRESSION_DEPTH + 1) + "a" + ")" * (MAX_EXPRESSION_DEPTH + 1),
        "(" * 8000,
        "NOT " * 4000 + "a",
        "-" * 16000 + "1",
        " OR ".join(["a"] * (MAX_EXPRESSION_DEPTH + 1)),
        "f(" * 8000,
        "a IN (" * 2500,
        "a" * (MAX_EXPRESSION_LENGTH + 1),
    ],
)
def test_bounds(text: str) -> None:
    with pytest.raises(CesqlParseError, match=r"deeper than|operators in a chain|characters, more than"):
        parse(text)


def test_expressions_within_the_bounds_are_evaluated() -> None:
    chain = parse(" OR ".join(["a = 1"] * (MAX_EXPRESSION_DEPTH - 2)))
    nested = parse(
        "NOT (" * (MAX_EXPRESSION_DEPTH // 2 - 1) + "a = 1" + ")" * (MAX_EXPRESSION_DEPTH // 2 - 1)
    )
    wide = parse("type IN (" + ", ".join(f"'type.{number}'" for number in range(1000)) + ")")
    for attributes, each in (({"a": 1}, chain), ({"a": 2}, nested), ({"type": "type.999"}, wide)):
        assert each.matches(attributes)
        assert each.evaluate(attributes).passes


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("not A=b", "(NOT a) = b"),
        ("NOT (a = b)", "NOT (a = b)"),
        ("a AND b OR c", "(a AND b) OR c"),
        ("a AND b AND c", "a AND b AND c"),
        ("a AND (b AND c)", "a AND (b AND c)"),
        ('NOT (a like "x\'y")', r"a NOT LIKE 'x\'y'"),
        ("-(a not in (1,TRUE))", "-(a NOT IN (1, TRUE))"),
        ("- 5 - -5", "- 5 - -5"),
        ("-a-b", "-a - b"),
        ("- 1a", "- 1a"),
        ("a = (b = c)", "a = (b = c)"),
        ("not exists A and length(b)>0", "NOT EXISTS a AND LENGTH(b) > 0"),
        ("(a + b) * c / (d * d)", "(a + b) * c / (d * d)"),
        ("((a) + (b * c)) - d % e", "a + b * c - d % e"),
    ],
)
def test_a_tree_has_the_parentheses_it_needs(text: str, written: str) -> None:
    assert write(parse(text).tree) == written
    assert parse(written).tree == parse(text).tree


@pytest.mark.parametrize(
    ("text", "literal"),
    [("", "''"), ("it's", r"'it\'s'"), (r"a\b", r"'a\b'"), (r"a\'b", r'"a\'b"'), (r"a\"b", r"""'a\"b'""")],
)
def test_a_text_is_quoted_so_that_it_is_read_again(text: str, literal: str) -> None:
    assert quote(text) == literal


def test_texts_that_have_no_literal() -> None:
    for text in ("ends in \\", r"both \' and \""):
        with pytest.raises(CesqlGenericError, match="no literal"):
            quote(text)
