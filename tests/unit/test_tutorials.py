"""The tutorials work as written: each command of a console block is run and prints what the page shows."""

import shlex
import sys
from pathlib import Path

import pytest

from tests.tutorials import FOLDER, ROOT, Reader, clean_environment

pytestmark = pytest.mark.long

ELSEWHERE = {
    "add-a-service.md": "it needs a plane; tests/e2e/test_documented_commands.py",
    "first-event.md": "it needs a plane; tests/e2e/test_documented_commands.py",
    "raspberry-pi.md": "its commands run on a Pi and in an account; tests/unit/packaging/test_packages.py",
}
"""Tutorials whose commands cannot run on this machine alone, and the test that they have instead."""

MAKE = f"""
make() {{
  local "${{@:2}}"
  {shlex.quote(sys.executable)} -m glue_jobs.delivery_audit --INPUT "$INPUT" --OUTPUT "$OUTPUT" --DATE "$DATE"
  {shlex.quote(sys.executable)} -m lab.audit_page "$OUTPUT" --archive "$INPUT"
}}
"""
"""What `make audit` does, without installing tools."""


@pytest.mark.parametrize(
    "page",
    [each for each in sorted(FOLDER.glob("*.md")) if each.name not in ELSEWHERE],
    ids=lambda page: page.stem,
)
def test_each_command_prints_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    (tmp_path / "build").mkdir()
    environment = clean_environment(PYTHONPATH=str(ROOT))
    environment["PATH"] = f"{ROOT / 'lab' / 'bin'}:{environment['PATH']}"
    # A trace of a lost event exits with 1, one without a known end with 3.
    with Reader(
        tmp_path, tmp_path / "terminals", environment, prelude=MAKE, statuses=frozenset({0, 1, 3})
    ) as reader:
        reader.follow(page)


@pytest.mark.parametrize("block", ["$ (exit 2)", "$ echo a\nb", "$ sleep infinity"])
def test_what_goes_otherwise_than_the_page_says_is_noticed(tmp_path: Path, block: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"```console\n{block}\n```\n")
    with (
        Reader(tmp_path, tmp_path / "terminals", clean_environment(), seconds=0.2) as reader,
        pytest.raises(AssertionError),
    ):
        reader.follow(page)
