"""The functions that `make bench-cloud` starts by themselves."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

from benchmarks.cold_start import FUNCTIONS, PARTS, aws, environment, run, unpack


@pytest.mark.source("B8")
@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_function_handles_its_first_event(function: str, tmp_path: Path) -> None:
    code = unpack(function, tmp_path)
    packages = Path(sysconfig.get_path("purelib"))
    with aws() as url:
        source = "alarm-centre.inbox" if function == "webhook" else None
        figures = run(function, environment(code, packages, url, source))
    assert len(figures) == len(PARTS)
