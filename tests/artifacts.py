"""The sizes of what is shipped, as the README states them."""

import re
from pathlib import Path
from typing import Final

import pytest

_README: Final = Path(__file__).parent.parent / "README.md"


def assert_size_is_stated(artifact: Path, name: str) -> None:
    """Assert that the README's row of `name` ("VERSION" for the version) has the size within a tenth."""
    (stated,) = re.findall(
        rf"^\| `{re.escape(name)}` \|.*\| ([\d.]+) MB \|$", _README.read_text(), re.MULTILINE
    )
    assert artifact.stat().st_size / 1e6 == pytest.approx(float(stated), rel=0.1), name
