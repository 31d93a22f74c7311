"""The core imports itself and the standard library, nothing else."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

CORE = Path(__file__).parents[2] / "eventplane"


def imported_packages(source: str) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module)
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("module", sorted(CORE.rglob("*.py")), ids=lambda path: path.stem)
def test_core_needs_only_the_standard_library(module: Path) -> None:
    strangers = imported_packages(module.read_text()) - set(sys.stdlib_module_names) - {"eventplane"}

    assert not strangers
