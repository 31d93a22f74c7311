"""`make check` stays fast, and `make check AREA=...` leaves nothing out."""

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


def test_an_unknown_area_is_refused_with_the_list_of_areas() -> None:
    refused = make("check", "AREA=edgy")
    assert refused.returncode != 0
    assert "AREA=edgy is unknown; name one of: client contract edge" in refused.stderr


def test_the_check_leaves_long_tests_to_the_full_suite_and_to_their_areas() -> None:
    left = '-m "not long"'
    assert left in make("check").stdout
    assert "tests/property" not in make("check").stdout
    assert left not in make("unit").stdout + make("check", "AREA=local").stdout


@pytest.mark.long
def test_lint_and_types_read_what_git_tracks(tmp_path: Path) -> None:
    """A folder of one's own in the checkout, and what lies beside its sources, is left alone."""
    lint, types = (make(target, "FAST=1").stdout.splitlines() for target in ("lint", "types"))
    commands = [each for each in (*lint, *types) if "git grep" in each]
    assert len(commands) == 3
    for each in ("pyproject.toml", "build/mypy.toml"):
        (tmp_path / each).parent.mkdir(exist_ok=True)
        (tmp_path / each).write_text((ROOT / "pyproject.toml").read_text())
    wrong = 'import os\nx: int = "one"\ny=1'
    for name, text in {"edge/right.py": "X = 1\n", "edge/wrong.py": wrong, "my own/wrong.py": wrong}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "edge" / "deleted.py").write_text("X = 1\n")

    def statuses() -> list[bool]:
        ran = [subprocess.run(["bash", "-euo", "pipefail", "-c", each], cwd=tmp_path) for each in commands]
        return [each.returncode == 0 for each in ran]

    for words in (["init", "-q"], ["add", "edge/right.py", "edge/deleted.py", "pyproject.toml"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    (tmp_path / "edge" / "deleted.py").unlink()
    assert statuses() == [True, True, True]
    subprocess.run(["git", "add", "edge/wrong.py"], cwd=tmp_path, check=True)
    assert statuses() == [False, False, False]


def test_the_areas_cover_every_package_and_its_unit_tests() -> None:
    areas = make("check", "AREA=?").stderr.split("one of: ")[1].split(".")[0].split()
    planned = " ".join(make("check", f"AREA={area}").stdout for area in areas)
    packages = set(re.findall(r"-- (\S+) [^|]*\| [^|]* \| xargs -0 mypy", planned))
    typed = re.search(r"^files = \[(.*)\]$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert packages == set(re.findall(r'"(\w+)"', typed[1]))
    tested = set(re.findall(r"tests/unit/(\w+)", planned))
    folders = {each.parent.name for each in (ROOT / "tests" / "unit").glob("*/test_*.py")}
    assert folders <= tested
