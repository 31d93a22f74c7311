"""Which tests show the features of the source documents."""

import pytest

from lab.tools.sources import SOURCES, MarkError, Shown, marks, missing

TEST = '@pytest.mark.source("P4", "C1")\ndef test_a(): ...\n'


def test_marks_show_their_rows() -> None:
    method = (
        f"@pytest.mark.source('K1')\nclass TestA:\n    {TEST.splitlines()[0]}\n    def test_b(self): ...\n"
    )
    case = "@pytest.mark.parametrize('a', [pytest.param(1, marks=pytest.mark.source('B1'))])\n"
    file = "pytestmark = [pytest.mark.source('N1')]\n"
    found = marks(f"{TEST}{method}{case}def test_c(a): ...\n{file}", "a.py")
    shown = [(each.row, each.test) for each in found]
    at_a, at_b = [("P4", "test_a"), ("C1", "test_a")], [("P4", "test_b"), ("C1", "test_b")]
    assert sorted(shown, key=str) == sorted(
        [*at_a, *at_b, ("K1", "TestA"), ("B1", "test_c"), ("N1", None)], key=str
    )


@pytest.mark.parametrize("mark", ["pytest.mark.skip", 'pytest.mark.xfail(reason="not yet")'])
def test_a_test_that_is_skipped_or_expected_to_fail_shows_nothing(mark: str) -> None:
    assert marks(f"@{mark}\n{TEST}", "a.py") == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('@pytest.mark.source("P99")\ndef test_a(): ...\n', "row 'P99' is unknown"),
        ('@pytest.mark.source("P1")\ndef helper(): ...\n', r"a\.py: a `source` mark is on no test"),
    ],
)
def test_a_mark_of_no_row_or_no_test_is_an_error(text: str, problem: str) -> None:
    with pytest.raises(MarkError, match=problem):
        marks(text, "a.py")


def test_a_row_without_a_test_is_missing() -> None:
    rows = [Shown(row, "a.py", None) for asked in SOURCES.values() for row in asked]
    assert missing(rows) == []
    assert missing([each for each in rows if each.row != "P4"]) == ["P4"]
