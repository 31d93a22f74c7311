"""A tree as text."""

import pytest

from eventplane.cesql import CesqlGenericError, parse, write
from eventplane.cesql.parser import quote


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
    ],
)
def test_write(text: str, written: str) -> None:
    assert write(parse(text).tree) == written
    assert parse(written).tree == parse(text).tree


@pytest.mark.parametrize(
    ("text", "literal"),
    [("", "''"), ("it's", r"'it\'s'"), (r"a\b", r"'a\b'"), (r"a\'b", r'"a\'b"'), (r"a\"b", r"""'a\"b'""")],
)
def test_quote(text: str, literal: str) -> None:
    assert quote(text) == literal


def test_texts_that_have_no_literal() -> None:
    for text in ("ends in \\", r"both \' and \""):
        with pytest.raises(CesqlGenericError, match="no literal"):
            quote(text)
