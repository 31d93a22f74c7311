"""The tables of the docs that are generated from the code."""

from tools.tables import limits


def test_a_limit_is_listed_however_it_is_declared() -> None:
    source = 'MAX_A = 2 * 1024\n"""Of A."""\nMAX_B: Final = 3\n"""Of\nB."""\n_HIDDEN = 4\n'
    assert limits(source) == [["`MAX_A`", "2,048", "Of A."], ["`MAX_B`", "3", "Of B."]]


def test_a_limit_is_computed_from_one_above_it() -> None:
    source = 'MAX_A = 2 * 1024\n"""Of A."""\nMAX_B = MAX_A - 48\n"""Of B."""\n_HIDDEN = 4\n'
    assert limits(source) == [["`MAX_A`", "2,048", "Of A."], ["`MAX_B`", "2,000", "Of B."]]
