"""The faults that the histories have to find are faults of the code as it is."""

import ast

import pytest

from local.histories.mutants import MUTANTS, ROOT, Mutant


@pytest.mark.long
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each.fault)
def test_what_a_mutant_replaces_is_in_its_file_once(mutant: Mutant) -> None:
    text = (ROOT / mutant.path).read_text("utf-8")
    assert text.count(mutant.old) == 1
    assert ast.dump(ast.parse(text.replace(mutant.old, mutant.new))) != ast.dump(ast.parse(text))
