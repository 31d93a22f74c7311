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


COMMAND_LINE = CORE / "__main__.py"


@pytest.mark.parametrize("module", sorted({*CORE.rglob("*.py")} - {COMMAND_LINE}), ids=lambda path: path.stem)
def test_only_the_command_line_reads_prints_and_exits(module: Path) -> None:
    tree = ast.parse(module.read_text())
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}

    assert not names & {"open", "print", "input", "exit"}
    assert not imported_packages(module.read_text()) & {"argparse", "sys"}
    assert not any(
        isinstance(node, ast.ImportFrom) and node.module == "eventplane.__main__" for node in ast.walk(tree)
    )
