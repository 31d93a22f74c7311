"""Packages: what a module imports, one that a test installs, and the sizes that the README states."""

import ast
import re
import sys
from pathlib import Path
from typing import Final

import pytest


def install(
    monkeypatch: pytest.MonkeyPatch, directory: Path, name: str, groups: dict[str, dict[str, str]], code: str
) -> None:
    """Install `code` as the module `name` into `directory` with its entry points, by group and name."""
    metadata = directory / f"{name}-1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    lines = [
        line
        for group, points in groups.items()
        for line in (f"[{group}]", *(f"{point} = {value}" for point, value in points.items()))
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
    (directory / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(directory)
    monkeypatch.delitem(sys.modules, name, raising=False)


def imported_packages(tree: ast.Module) -> set[str]:
    """Return the top packages that a module imports anywhere."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module)
    return {name.partition(".")[0] for name in names}


_README: Final = Path(__file__).parent.parent / "README.md"


def assert_size_is_stated(artifact: Path, name: str) -> None:
    """Assert that the README's row of `name` ("VERSION" for the version) has the size within a tenth."""
    (stated,) = re.findall(
        rf"^\| `{re.escape(name)}` \|.*\| ([\d.]+) MB \|$", _README.read_text(), re.MULTILINE
    )
    assert artifact.stat().st_size / 1e6 == pytest.approx(float(stated), rel=0.1), name
