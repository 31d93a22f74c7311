"""Random damage at rest: a few hundred here, two thousand in `make crash-test`."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.power.damage import damage_at_random
from tests.examples import examples


@pytest.mark.source("F-W1", "C-W3")
@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_lost_silently_and_nothing_is_invented(tmp_path: Path, seed: int) -> None:
    findings = damage_at_random(tmp_path, seed, examples(40))
    assert findings.first == []
    assert findings.harmless + findings.saved + findings.reported == findings.damages == examples(40)
