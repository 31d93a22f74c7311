"""Which tests show the features of the source documents."""

import pytest

from tools.sources import SOURCES, MarkError, Shown, marks, missing, rows

TEST = '@pytest.mark.source("P4", "C1")\ndef test_a(): ...\n'


def test_a_function_a_class_and_a_file_show_what_their_marks_name() -> None:
    assert marks(TEST, "a.py") == [Shown("P4", "a.py", "test_a"), Shown("C1", "a.py", "test_a")]
    method = (
        '@pytest.mark.source("K1")\nclass TestA:\n    @pytest.mark.source("K2")\n    def test_b(self): ...\n'
    )
    assert marks(method, "b.py") == [Shown("K1", "b.py", "TestA"), Shown("K2", "b.py", "test_b")]
    assert marks('pytestmark = [pytest.mark.source("N1")]\n', "c.py") == [Shown("N1", "c.py", None)]


def test_a_case_of_a_parametrized_test_can_have_a_mark_of_its_own() -> None:
    cases = '[pytest.param(1, marks=pytest.mark.source("B1"))]'
    text = f'@pytest.mark.parametrize("a", {cases})\ndef test_a(a): ...\n'
    assert marks(text, "a.py") == [Shown("B1", "a.py", "test_a")]


@pytest.mark.parametrize("mark", ["pytest.mark.skip", 'pytest.mark.xfail(reason="not yet")'])
def test_a_test_that_is_skipped_or_expected_to_fail_shows_nothing(mark: str) -> None:
    assert marks(f"@{mark}\n{TEST}", "a.py") == []


def test_an_unknown_row_is_an_error() -> None:
    with pytest.raises(MarkError, match="row 'P99' is unknown"):
        marks('@pytest.mark.source("P99")\ndef test_a(): ...\n', "a.py")


@pytest.mark.parametrize(
    "text", ['@pytest.mark.source("P1")\ndef helper(): ...\n', 'marker = pytest.mark.source("P1")\n']
)
def test_a_mark_that_pytest_applies_to_no_test_is_an_error(text: str) -> None:
    with pytest.raises(MarkError, match=r"a\.py: a `source` mark is on no test"):
        marks(text, "a.py")


def test_a_row_without_a_test_is_missing() -> None:
    everything = [Shown(row, "a.py", None) for asked in SOURCES.values() for row in asked]
    assert missing(everything) == []
    assert missing([each for each in everything if each.row != "P4"]) == ["P4"]


def test_the_tests_of_a_row_are_listed_by_file() -> None:
    found = [
        Shown("N1", "unit/a.py", "test_a"),
        Shown("N1", "unit/a.py", "test_b"),
        Shown("N1", "b.py", None),
    ]
    row, asked, cell = rows("message-broker", found)[0]
    assert (row, asked) == ("N1", SOURCES["message-broker"]["N1"])
    assert cell == ("[unit/a.py](../../tests/unit/a.py): `test_a`, `test_b`<br>[b.py](../../tests/b.py)")
