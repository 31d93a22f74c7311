"""The faults that the histories have to find are faults of the code as it is."""

import ast
from importlib.machinery import SourceFileLoader

import pytest

from lab.histories.mutants import MUTANTS, ROOT, Mutant, Planted


@pytest.mark.long
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each.fault)
def test_what_a_mutant_replaces_is_in_its_file_once(mutant: Mutant) -> None:
    text = (ROOT / mutant.path).read_text("utf-8")
    assert text.count(mutant.old) == 1
    assert ast.dump(ast.parse(text.replace(mutant.old, mutant.new))) != ast.dump(ast.parse(text))


def test_each_mutant_has_a_name_of_its_own() -> None:
    assert len({each.fault for each in MUTANTS}) == len(MUTANTS)


def test_a_planted_fault_is_in_what_is_imported_of_its_module() -> None:
    planted = Planted(MUTANTS[0])
    spec = planted.find_spec(planted.name, None)
    assert spec.loader is planted
    assert planted.find_spec("json", None) is None
    sound = SourceFileLoader(planted.name, planted.path).get_code(planted.name)
    assert planted.get_code(planted.name) != sound
