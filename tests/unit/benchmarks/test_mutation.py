"""The sample of mutants, and its score."""

from __future__ import annotations

from benchmarks.mutation import MODULES, ROOT, sample, score

NAMES = [f"module.x_function__mutmut_{number}" for number in range(500)]


def test_a_larger_sample_includes_a_smaller_one() -> None:
    assert sample(reversed(NAMES), 100) == sample(NAMES, 300)[:100]
    assert sorted(sample(NAMES, 1_000)) == sorted(NAMES)


def test_a_mutant_that_no_test_runs_counts_as_not_noticed() -> None:
    ways = ["killed", "timeout", "survived", "no test", None]
    figure = score("spool", dict(zip(NAMES, ways, strict=False)), 300)
    assert (figure.name, figure.value, figure.unit) == ("mutation_spool", 50.0, "%")
    assert figure.note == (
        "2 of 4 noticed, 1 survived, 1 run by no test; 5 mutants in all, 1 of the sample not tested in time"
    )


def test_each_module_has_its_sources_and_tests() -> None:
    for module in MODULES.values():
        for pattern in (*module.sources, *module.tests):
            assert list(ROOT.glob(pattern)), pattern
