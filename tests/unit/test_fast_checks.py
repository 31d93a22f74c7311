"""`make check` tries few examples, and `make check AREA=...` leaves nothing out."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "--dry-run", "--no-print-directory", *arguments]
    # Not the flags and variables of the make that may run this test.
    environment = {name: each for name, each in os.environ.items() if not name.startswith(("MAKE", "FAST"))}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.parametrize("folder", ["unit", "property"])
def test_every_property_obeys_the_fast_profile(folder: str) -> None:
    for path in (ROOT / "tests" / folder).rglob("*.py"):
        for value in re.findall(r"max_examples=(\w+)", path.read_text()):
            assert value == "examples", path


def test_the_areas_cover_every_package_and_its_unit_tests() -> None:
    areas = make("check", "AREA=?").stderr.split("one of: ")[1].split(".")[0].split()
    planned = " ".join(make("check", f"AREA={area}").stdout for area in areas)
    packages = set(re.findall(r"-- (\S+) \| [^|]* \| xargs -0 mypy", planned))
    typed = re.search(r"^files = \[(.*)\]$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert typed is not None
    # The examples are checked with the whole: their tests need a broker.
    assert packages == set(re.findall(r'"(\w+)"', typed[1])) - {"examples"}
    tested = set(re.findall(r"tests/unit/(\w+)", planned))
    folders = {each.parent.name for each in (ROOT / "tests" / "unit").glob("*/test_*.py")}
    assert folders - tested == {"benchmarks"}
